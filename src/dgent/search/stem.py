"""English stems: forms of one word become one text, as `connected` and `connections` become `connect`.

The rules are those of the Porter2 (Snowball English) stemmer as its authors describe it, with the exceptions
they list since version 3. Stored words depend on these rules: to change one is to change
`dgent.search.words.TOKENIZER`.
"""

from __future__ import annotations

import re

_VOWELS = frozenset("aeiouy")  # a consonant y is written Y while a word is being stemmed
_DOUBLES = frozenset(("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt"))
_BEFORE_LI = frozenset("cdeghkmnrt")
_AFTER_VOWEL = re.compile("[aeiouy]+[^aeiouy]")
_VOWEL = re.compile("[aeiouy]")

# Words whose first region would begin too early: general, generic and generous are three words.
_ROOTS = ("gener", "commun", "arsen", "past", "univers", "later")

_WHOLE = {
    "skis": "ski",
    "skies": "sky",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    **{same: same for same in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
_NOT_PAST = frozenset(("proceed", "exceed", "succeed"))
_NOT_ING = frozenset(("inning", "outing", "canning", "herring", "earring", "evening"))

_IN_R1 = {
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "abli": "able",
    "entli": "ent",
    "izer": "ize",
    "ization": "ize",
    "ational": "ate",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "aliti": "al",
    "alli": "al",
    "fulness": "ful",
    "ousli": "ous",
    "ousness": "ous",
    "iveness": "ive",
    "iviti": "ive",
    "biliti": "ble",
    "bli": "ble",
    "ogist": "og",
    "ogi": "og",
    "fulli": "ful",
    "lessli": "less",
    "li": "",
}
_THEN_IN_R1 = {
    "tional": "tion",
    "ational": "ate",
    "alize": "al",
    "icate": "ic",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
    "ative": "",
}
_LAST = "al ance ence er ic able ible ant ement ment ent ism ate iti ous ive ize ion"
_IN_R2 = dict.fromkeys(_LAST.split(), "")

# The last letters of suffixes: most words are told by theirs that none of a table fits.
_VERB_ENDS = frozenset("ydg")
_R1_ENDS, _THEN_ENDS, _R2_ENDS = (
    frozenset(suffix[-1] for suffix in table) for table in (_IN_R1, _THEN_IN_R1, _IN_R2)
)


def stem(word: str) -> str:
    """Return the stem of a lower-case English word: ASCII letters, perhaps with apostrophes.

    The stem of a word that is not empty is not empty.
    """
    if len(word) <= 2:
        return word
    if word in _WHOLE:
        return _WHOLE[word]
    marked = _mark_consonants(word.removeprefix("'"))
    first = _first_region(marked)
    after = _AFTER_VOWEL.search(marked, first)
    second = after.end() if after else len(marked)
    found = _strip_plural(_strip_possessive(marked))
    if found not in _NOT_PAST:
        found = _strip_verb_ending(found, first)
        found = _replace_y(found)
        found = _replace_suffix(found, _IN_R1, _R1_ENDS, first, second)
        found = _replace_suffix(found, _THEN_IN_R1, _THEN_ENDS, first, second)
        found = _replace_suffix(found, _IN_R2, _R2_ENDS, second, second)
        found = _strip_final(found, first, second)
    return found.lower() or word


def _mark_consonants(word: str) -> str:
    """Write each y that is a consonant, at the start or after a vowel, as Y."""
    if "y" not in word:
        return word
    letters = list(word)
    for place, letter in enumerate(letters):
        if letter == "y" and (place == 0 or letters[place - 1] in _VOWELS):
            letters[place] = "Y"
    return "".join(letters)


def _first_region(word: str) -> int:
    """Return where the first region begins: after the first consonant that follows a vowel."""
    for root in _ROOTS:
        if word.startswith(root):
            return len(root)
    after = _AFTER_VOWEL.search(word)
    return after.end() if after else len(word)


def _ends_short(word: str) -> bool:
    """Return whether a word ends in a short syllable, as `rap`, `on` and `past` do."""
    if len(word) < 2 or word[-1] in _VOWELS or word[-2] not in _VOWELS:
        return word.endswith("past")
    return len(word) == 2 or (word[-3] not in _VOWELS and word[-1] not in "wxY")


def _strip_possessive(word: str) -> str:
    if "'" not in word:
        return word
    for suffix in ("'s'", "'s", "'"):
        if word.endswith(suffix):
            return word.removesuffix(suffix)
    return word


def _strip_plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _VOWEL.search(word, 0, len(word) - 2):
        return word[:-1]
    return word


def _strip_verb_ending(word: str, first: int) -> str:
    """Remove -ed and -ing, with -ly or without: hopping becomes hop, and hoping hope."""
    if word[-1:] not in _VERB_ENDS:
        return word
    for suffix in ("eedly", "eed"):
        if word.endswith(suffix):
            start = len(word) - len(suffix)
            return word[: start + 2] if start >= first else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        if word.endswith(suffix):
            break
    else:
        return word
    verb = word.removesuffix(suffix)
    if suffix == "ing":
        if len(verb) == 2 and verb[1] == "y" and verb[0] not in _VOWELS:
            return f"{verb[0]}ie"
        if word in _NOT_ING:
            return word
    return _restore_verb(verb, first) if _VOWEL.search(verb) else word


def _restore_verb(verb: str, first: int) -> str:
    """Undo what -ed and -ing did to the verb before them."""
    if verb.endswith(("at", "bl", "iz")):
        return f"{verb}e"
    if verb[-2:] in _DOUBLES:
        return verb if len(verb) == 3 and verb[0] in "aeo" else verb[:-1]
    return f"{verb}e" if first >= len(verb) and _ends_short(verb) else verb


def _replace_y(word: str) -> str:
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        return f"{word[:-1]}i"
    return word


def _replace_suffix(word: str, table: dict[str, str], ends: frozenset[str], region: int, second: int) -> str:
    """Replace the longest suffix of a table if it lies in a region; a shorter one is not tried."""
    if word[-1:] not in ends:
        return word
    for size in range(min(7, len(word)), 1, -1):
        suffix = word[-size:]
        if suffix in table:
            start = len(word) - size
            if start < region or not _is_allowed(suffix, word[:start], start >= second):
                return word
            return word[:start] + table[suffix]
    return word


def _is_allowed(suffix: str, before: str, in_second: bool) -> bool:
    """Return whether the few suffixes with a condition may be replaced."""
    if suffix == "li":
        return before[-1:] in _BEFORE_LI
    if suffix == "ogi":
        return before.endswith("l")
    if suffix == "ative":
        return in_second
    return suffix != "ion" or before.endswith(("s", "t"))


def _strip_final(word: str, first: int, second: int) -> str:
    """Remove a final e, and one l of two."""
    rest = word[:-1]
    if word.endswith("e") and (len(rest) >= second or (len(rest) >= first and not _ends_short(rest))):
        return rest
    return rest if word.endswith("ll") and len(rest) >= second else word
