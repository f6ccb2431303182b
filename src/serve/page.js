  "use strict";
  const at = (id) => document.getElementById(id);
  let running = null;  // stops the answer that comes

  function say(message) { at("note").textContent = message; }

  fetch("health").then((answer) => answer.json()).then((health) => {
    at("model").textContent = health.model;
    offer(health.models);
  }).catch(() => say("The server does not answer."));

  // The model and its adapters, where it has any.
  function offer(models) {
    at("models").append(...models.map((name) => new Option(name)));
    at("models").hidden = models.length === 1;
    at("model").hidden = !at("models").hidden;
  }

  // Asks with `body` and the settings that are filled in; take(choice) gets each piece of the answer as it comes.
  async function stream(path, body, take) {
    for (const name of ["max_tokens", "temperature", "top_p", "seed"]) {
      if (at(name).value !== "") body[name] = Number(at(name).value);
    }
    if (!at("models").hidden) body.model = at("models").value;
    const headers = { "Content-Type": "application/json" };
    if (at("key").value) headers.Authorization = "Bearer " + at("key").value;
    const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify({ ...body, stream: true }), signal: running.signal });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
        const piece = JSON.parse(line.slice(6));
        if (piece.error) throw new Error(piece.error.message);
        if (piece.choices.length > 0) take(piece.choices[0]);
      }
    }
  }

  // Says why work() failed, unless somebody has stopped it.
  async function run(work) {
    say("");
    running = new AbortController();
    enable();
    try {
      await work();
    } catch (error) {
      if (error.name !== "AbortError") say(error instanceof TypeError ? "The server does not answer." : error.message);
    }
    running = null;
    enable();
  }
  at("stop").addEventListener("click", () => running && running.abort());
