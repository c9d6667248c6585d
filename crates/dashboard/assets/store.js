// Named values received from the server, updated by one stream of server-sent events.

/** How long a hidden page keeps its stream open. After that it causes no load on the servers. */
const HIDDEN_MAX_MS = 15000;
const RETRY_MS = 1000;
const SAMPLES_MAX = 150;

class Store {
  values = new Map();
  samples = [];
  /** `live`, `connecting` or `logged out`. */
  state = "connecting";
  #listeners = new Set();
  #source;
  #isWhole = false;
  #hidden;

  start() {
    this.#open();
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.#hidden);
      if (document.visibilityState === "hidden") this.#hidden = setTimeout(() => this.#close(), HIDDEN_MAX_MS);
      else if (!this.#source) this.#open();
    });
  }

  /** Calls `listener(names)` with the set of names that changed. Returns a function that removes the listener. */
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get(name) {
    return this.values.get(name);
  }

  /** All recipes in use of the given kinds. */
  sights(...recipes) {
    const found = [];
    for (const [name, value] of this.values) {
      if (name.startsWith("sight ") && recipes.includes(value.recipe)) found.push(value);
    }
    return found;
  }

  restart() {
    this.#close();
    this.#open();
  }

  #open() {
    const source = new EventSource("/api/live");
    this.#source = source;
    source.onopen = () => {
      this.#isWhole = true;
    };
    source.onmessage = (event) => this.#take(JSON.parse(event.data));
    source.onerror = () => {
      this.#become("connecting");
      // A refusal ends the stream for good: it may have been a server that was about to stop.
      if (source.readyState === EventSource.CLOSED && this.#source === source) {
        this.#close();
        setTimeout(() => this.#source ?? this.#open(), RETRY_MS);
      }
    };
  }

  #close() {
    this.#source?.close();
    this.#source = undefined;
  }

  #take(message) {
    if (message.history) {
      this.samples = message.history;
      this.#become("live");
      return;
    }
    const changed = new Set(Object.keys(message.set));
    const gone = new Set(message.gone);
    // The first message of a stream is everything.
    if (this.#isWhole) {
      for (const name of this.values.keys()) if (!changed.has(name)) gone.add(name);
      this.#isWhole = false;
    }
    for (const [name, value] of Object.entries(message.set)) this.values.set(name, value);
    for (const name of gone) {
      this.values.delete(name);
      changed.add(name);
    }
    if (changed.has("sample")) {
      const sample = this.values.get("sample");
      if (this.samples.at(-1)?.at_ms !== sample.at_ms) this.samples.push(sample);
      if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    }
    this.#notify(changed);
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.#notify(new Set(["state"]));
  }

  #notify(changed) {
    for (const listener of this.#listeners) listener(changed);
  }
}

export const store = new Store();

/** Sends a request to the server, and throws its error message if it refuses. */
export async function ask(path, options) {
  const response = await fetch(path, options);
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = new Error(answer.error ?? `the dashboard answers ${response.status}`);
    error.status = response.status;
    throw error;
  }
  return answer;
}
