"""Stems follow the published rules of Porter2, step by step and exception by exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.search.stem import stem

PAIRS = {
    "exceptions": """
        skis ski skies sky sky sky idly idl gently gentl ugly ugli early earli only onli singly singl
        news news howe howe atlas atlas cosmos cosmos bias bias andes andes proceed proceed exceed exceed
        succeed succeed proceeds proceed succeeds succeed inning inning outing outing canning canning
        herring herring
        earring earring evening evening herrings herring innings inning dying die lying lie tying tie
        vying vie dyings die
    """,
    "regions that begin later": """
        generate generat generates generat generated generat generating generat general general
        generally general generic generic generically generic generous generous generously generous
        communication communic communism communism community communiti arsenic arsenic arsenal arsenal
        past past paste paste pasted paste pasting paste pastes paste universe univers universes univers
        universal universal university universiti later later lateral lateral laterally lateral
    """,
    "plurals": """
        caresses caress ties tie cries cri ponies poni gas gas this this gaps gap kiwis kiwi boss boss
        dangerous danger virus virus cats cat is is as as
    """,
    "past and gerund": """
        agreed agre feed feed proceeding proceed luxuriated luxuri luxuriating luxuri hopping hop hoping hope
        hoped hope hopped hop troubled troubl sized size falling fall filing file failing fail fizzed fizz
        added add egged egg bed bed sing sing motoring motor plastered plaster bled bled conflated conflat
        tanned tan hissing hiss repeatedly repeat seemingly seem exceedingly exceed
    """,
    "final y": "cry cri by by say say happy happi enjoy enjoy day day sayings say youth youth boyish boyish",
    "first suffixes": """
        relational relat conditional condit rational ration valency valenc hesitancy hesit digitizer digit
        conformably conform radically radic differently differ vilely vile analogously analog
        vietnamization vietnam predication predic operator oper feudalism feudal decisiveness decis
        hopefulness hope callousness callous formality formal sensitivity sensit sensibility sensibl
        geology geolog geologist geolog geologists geolog apology apolog carefully care carelessly careless
        quickly quick probably probabl
    """,
    "more suffixes": """
        triplicate triplic formative format formalize formal electricity electr electrical electr
        hopeful hope goodness good rationalize ration
    """,
    "last suffixes": """
        revival reviv allowance allow inference infer airliner airlin adjustable adjust defensible defens
        irritant irrit replacement replac adjustment adjust dependent depend adoption adopt activate activ
        effective effect homologous homolog bowdlerize bowdler probate probat rate rate cease ceas
        controlling control controllable control roll roll
    """,
    "a stretch of the published vocabulary": """
        consign consign consigned consign consigning consign consignment consign consist consist
        consisted consist consistency consist consistent consist consistently consist consisting consist
        consists consist consolation consol consolations consol consolatory consolatori console consol
        consoled consol consoles consol consolidate consolid consolidated consolid consolidating consolid
        consoling consol consolingly consol consols consol consonant conson consort consort
        conspicuous conspicu conspicuously conspicu conspiracy conspiraci conspirator conspir
        conspire conspir conspiring conspir constable constabl constables constabl constance constanc
        constancy constanc constant constant knack knack knackeries knackeri knacks knack knag knag
        knave knave knaves knave knavish knavish kneaded knead kneading knead knee knee kneel kneel
        kneeled kneel kneeling kneel kneels kneel knees knee knell knell knelt knelt knew knew knick knick
        knif knif knife knife knight knight knightly knight knights knight knit knit knits knit
        knitted knit knitting knit knives knive knob knob knobs knob knock knock knocked knock
        knocker knocker knockers knocker knocking knock knocks knock knopp knopp knot knot knots knot
    """,
    "apostrophes": "'tis tis boy's boy boys' boy",
}


def pairs(text: str) -> list[tuple[str, str]]:
    found = text.split()
    return list(zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize("rule", PAIRS)
def test_words_have_the_published_stems(rule: str) -> None:
    assert [(word, stem(word)) for word, _ in pairs(PAIRS[rule])] == pairs(PAIRS[rule])


@pytest.mark.parametrize(
    "forms",
    [
        "connect connects connected connecting connection connections connective",
        "study studies studied studying",
        "paint paints painted painting paintings",
        "plan plans planned planning",
        "organize organized organizes organizing",
    ],
)
def test_forms_of_a_word_are_one(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


@given(st.text("abcdefghijklmnopqrstuvwxyz'", max_size=80))
def test_a_stem_is_plain_and_never_lost(word: str) -> None:
    found = stem(word)
    assert bool(found) == bool(word)
    assert found.isascii() and found == found.lower() and len(found) <= len(word)


@given(st.text("sedinglyY'", max_size=12), st.sampled_from(["", "e", "ed", "ing", "ational", "y", "'s"]))
def test_odd_words_have_stems(root: str, ending: str) -> None:
    word = f"{root}{ending}".lower()
    assert bool(stem(word)) == bool(word)
