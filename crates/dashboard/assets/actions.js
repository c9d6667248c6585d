// Actions of users, each behind a confirmation that says what will happen.

import { h, show } from "./dom.js";
import { ask, store } from "./store.js";

const about = { actions: false, logged_in: false };

export function setAbout(now) {
  Object.assign(about, now);
}

export function mayAct() {
  return about.actions && about.logged_in;
}

/** Opens a dialog with a title, a body and buttons; Escape and *Close* close it. */
export function openDialog(title, content, buttons = []) {
  const dialog = document.getElementById("dialog");
  show(
    dialog,
    h("h2", { id: "dialog-title" }, title),
    content,
    h("p", { class: "dialog-note", role: "status" }),
    h("div", { class: "buttons" }, buttons, h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Close")),
  );
  if (!dialog.open) dialog.showModal();
  return dialog;
}

/** The buttons for a holder or waiter: none without a login. */
export function actionsFor(one, holds, { path }) {
  if (!mayAct()) return [];
  const who = one.who?.host ? `${one.who.user ?? "?"}@${one.who.host}, process ${one.who.pid}` : `session ${one.session}`;
  const buttons = [
    h("button", {
      type: "button",
      onclick: () =>
        confirm(
          "Ask to release?",
          `${who} is asked to release ${path}. It may refuse; its hold is not broken.`,
          "Ask to release",
          { action: "revoke", path: one.path, token: one.token, message: "asked on the dashboard" },
        ),
    }, "Ask to release…"),
  ];
  const verb = holds ? "Break the hold" : "Remove from the line";
  buttons.push(
    h("button", {
      type: "button",
      class: "danger",
      onclick: () =>
        confirm(
          `${verb}?`,
          holds
            ? `${who} has 5 seconds to release ${path}. Then its node is deleted, and the next waiter acquires it. A holder that does not notice may still be working; only its fencing token tells it apart.`
            : `${who} has 5 seconds to leave the line of ${path}. Then its node is deleted.`,
          verb,
          { action: "break", path: one.path, token: one.token, message: "broken on the dashboard" },
        ),
    }, `${verb}…`),
  );
  return buttons;
}

/** Asks for confirmation, acts, then shows the result. */
export function confirm(title, what, verb, action) {
  const go = h("button", {
    type: "button",
    class: "danger",
    onclick: async () => {
      go.disabled = true;
      note("working…");
      try {
        const { end } = await ask("/api/action", { method: "POST", body: JSON.stringify(action) });
        note({ asked: "The holder was asked to release.", broken: "The hold was broken.", gone: "The node no longer exists.", retried: "The item was put back.", cleared: "The crash mark was cleared." }[end] ?? end);
      } catch (error) {
        note(`The action failed: ${error.message}`);
      }
    },
  }, verb);
  openDialog(title, h("p", {}, what), [go]);
  go.focus();
}

function note(text) {
  const place = document.querySelector("#dialog .dialog-note");
  if (place) place.textContent = text;
}

/** Asks for the token. */
export function logIn() {
  const field = h("input", { type: "password", id: "token", autocomplete: "current-password", "aria-label": "token" });
  const send = async () => {
    try {
      await ask("/api/login", { method: "POST", body: field.value });
      document.getElementById("dialog").close();
      setAbout(await ask("/api/about"));
      document.dispatchEvent(new CustomEvent("login"));
      store.restart();
    } catch (error) {
      note(error.message);
    }
  };
  field.addEventListener("keydown", (event) => event.key === "Enter" && send());
  openDialog(
    "Log in",
    h("div", {}, h("p", {}, "The token was printed when the dashboard started, or is in its token file."), field),
    [h("button", { type: "button", id: "send-token", onclick: send }, "Log in")],
  );
  field.focus();
}
