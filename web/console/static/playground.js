/* Stream the playground's answer. Without this the form posts, and the page comes back with the whole. */
"use strict";

const form = document.getElementById("ask");
const place = document.getElementById("reply");
const bill = document.getElementById("bill");
const stop = document.getElementById("stop");

if (form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
}

async function ask() {
  const canceled = new AbortController();
  stop.hidden = false;
  stop.onclick = () => canceled.abort();
  place.replaceChildren();
  tell("run", "Asked");
  const answer = { text: "", usage: null, error: null, began: performance.now(), first: null };
  try {
    const response = await fetch("/console/models/ask", {
      method: "POST",
      headers: { Accept: "text/event-stream" },
      body: new URLSearchParams(new FormData(form)),
      signal: canceled.signal,
    });
    if (response.status !== 200 || !response.headers.get("Content-Type").startsWith("text/event-stream")) {
      answer.error = await reason(response);
    } else {
      await read(response.body, answer);
    }
  } catch (error) {
    answer.error = error.name === "AbortError" ? "Stopped" : "The connection broke";
  }
  stop.hidden = true;
  conclude(answer);
}

async function read(body, answer) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const paragraph = place.appendChild(document.createElement("p"));
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data && data !== "data: [DONE]") take(JSON.parse(data.slice(6)), answer);
    }
    paragraph.textContent = answer.text;
  }
}

function take(chunk, answer) {
  if (chunk.error) answer.error = chunk.error.message;
  if (chunk.usage) answer.usage = chunk.usage;
  for (const choice of chunk.choices || []) {
    const said = choice.delta && choice.delta.content;
    if (said) {
      answer.first ??= performance.now();
      answer.text += said;
    }
  }
}

async function reason(response) {
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const told = page.querySelector("main h1 + p, main p:not(.stamp)");
  return told ? told.textContent : `Refused with ${response.status}`;
}

function conclude(answer) {
  if (answer.error) return tell("bad", answer.error);
  tell("ok", "Completed");
  if (answer.usage) {
    const { prompt_tokens: asked, completion_tokens: said, cost } = answer.usage;
    if (cost !== undefined) add(`${cost} cr`);
    add(`${asked} tokens in, ${said} out`);
  }
  if (answer.first) add(`first word ${seconds(answer.began, answer.first)}, all ${seconds(answer.began, performance.now())}`);
}

function tell(kind, word) {
  bill.replaceChildren();
  add(word).className = `st ${kind}`;
}

function add(text) {
  const part = bill.appendChild(document.createElement("span"));
  part.textContent = text;
  return part;
}

function seconds(from, to) {
  return `${((to - from) / 1000).toFixed(2)} s`;
}
