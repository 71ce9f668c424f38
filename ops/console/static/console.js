// What makes pages live. Everything works without it: forms are forms, figures are those of loading.
"use strict";
(() => {
  const every = 3000; // ms between two looks of what is not on the board
  const places = new Map(); // name on the board -> [[element, how to show it]]
  const kinds = {
    live: (element, text) => { element.textContent = text; },
    liveState: (element, text) => { element.dataset.state = text; },
    livePoints: (element, text) => { element.setAttribute("points", text); },
    liveValue: (element, text) => { text === "" ? element.removeAttribute("value") : element.setAttribute("value", text); },
  };
  const attributes = { live: "data-live", liveState: "data-live-state", livePoints: "data-live-points", liveValue: "data-live-value" };

  function find() {
    places.clear();
    for (const [kind, attribute] of Object.entries(attributes)) {
      for (const element of document.querySelectorAll(`[${attribute}]`)) {
        const name = element.getAttribute(attribute);
        if (!places.has(name)) places.set(name, []);
        places.get(name).push([element, kinds[kind]]);
      }
    }
  }

  function put(news) {
    for (const [name, text] of Object.entries(news)) {
      for (const [element, show] of places.get(name) || []) show(element, text);
    }
    const shape = news["all/shape"];
    if (shape !== undefined && document.body.dataset.shape !== undefined) {
      document.getElementById("changed").dataset.state = shape === document.body.dataset.shape ? "there" : "away";
    }
  }

  function tell(state, text) {
    const pulse = document.getElementById("live");
    if (pulse === null || pulse.dataset.state === state) return;
    pulse.dataset.state = state;
    pulse.firstElementChild.textContent = text;
  }

  function follow() {
    const events = new EventSource("/live");
    events.onmessage = (event) => { tell("on", "live"); put(JSON.parse(event.data)); };
    events.onerror = () => {
      tell("away", "not live");
      if (events.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      setTimeout(again, 5000);
    };
    window.addEventListener("pagehide", () => events.close());
  }

  async function again() { // it was refused: perhaps the session is over
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected) { location.reload(); return; }
    } catch { /* away: the next try will tell */ }
    follow();
  }

  async function look() { // parts of a page that come anew as a whole
    const parts = document.querySelectorAll("[data-poll]");
    if (parts.length === 0 || document.hidden) return;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of parts) {
        const other = fresh.getElementById(part.id);
        if (other === null || part.innerHTML === other.innerHTML || part.contains(document.activeElement)) continue;
        part.replaceChildren(...other.childNodes);
      }
      find();
    } catch { /* away: the banner tells, and the next look finds it back */ }
  }

  function choose(event) { // all on this page, and back
    const name = event.target.dataset.all;
    if (name === undefined) return;
    for (const box of document.querySelectorAll(`input[type=checkbox][name="${name}"]`)) box.checked = event.target.checked;
  }

  function shortcut(event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea")) return;
    const field = document.querySelector('[data-shortcut="/"]');
    if (field === null) return;
    event.preventDefault();
    field.focus();
  }

  document.documentElement.classList.add("has-js");
  document.addEventListener("change", choose);
  document.addEventListener("keydown", shortcut);
  find();
  follow();
  setInterval(look, every);
})();
