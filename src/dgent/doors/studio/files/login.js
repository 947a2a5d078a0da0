// The login: a token becomes a cookie that scripts cannot read.
const form = document.getElementById("login");
const said = document.getElementById("said");

function say(text) {
  said.textContent = text;
  said.hidden = false;
}

const asked = new URLSearchParams(location.search);
if (asked.has("used")) say("This link was used before, or is too old. Run “dgent studio” again for a new one.");
if (asked.has("out")) say("You are signed out.");
if (asked.has("c")) form.elements.constellation.value = asked.get("c");
try {
  const theme = localStorage.getItem("dgent.theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* a browser that keeps nothing */ }

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const constellation = form.elements.constellation.value.trim();
  const body = JSON.stringify({ token: form.elements.token.value.trim(), constellation });
  const headers = { "Content-Type": "application/json", "X-Dgent-Studio": "1" };
  try {
    const answer = await fetch("/login", { method: "POST", headers, body });
    if (answer.ok) {
      location.href = constellation ? `/?c=${encodeURIComponent(constellation)}` : "/";
      return;
    }
    const failed = await answer.json();
    say([failed.error, failed.hint].filter(Boolean).join(". "));
  } catch {
    say("The server cannot be reached.");
  }
});
