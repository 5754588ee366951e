// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0
// Fills the tables from state.json. Everything is set as text: names and messages come from users.
"use strict";

const EVERY_MS = 5000;
const at = (id) => document.getElementById(id);

// A text of a user may be written from right to left: it is set apart from what is around it.
function words(text) {
  const set = document.createElement("bdi");
  set.textContent = text;
  return set;
}

function cell(row, content, kind = "", tag = "td") {
  const made = document.createElement(tag);
  if (tag === "th") made.scope = "row";
  made.className = kind;
  for (const part of [content].flat()) made.append(typeof part === "string" ? words(part) : part);
  row.append(made);
  return made;
}

function span(text, kind) {
  const made = document.createElement("span");
  made.className = kind;
  made.append(words(text));
  return made;
}

function age(seconds) {
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["m", 60]])
    if (seconds >= 2 * length) return Math.floor(seconds / length) + unit;
  return seconds + "s";
}

const or = (text, unit = "") => (text === "" ? "-" : text + unit);
const workload = (one) => [one.namespace + "/" + one.name, document.createElement("br"), span(one.kind, "quiet")];

function bar(device) {
  const made = document.createElement("div");
  made.className = device.health === "Healthy" ? "bar" : "bar bad";
  made.setAttribute("aria-hidden", "true"); // the list below it and the columns say the same
  const whole = Math.max(100, device.grantedPercent);
  const lanes = new Set(); // those of one lane have its share in turn
  for (const slice of device.slices) {
    if (slice.lane && lanes.has(slice.lane)) continue;
    lanes.add(slice.lane);
    const part = document.createElement("span");
    part.style.width = (100 * slice.percent) / whole + "%";
    part.textContent = slice.percent + "%";
    made.append(part);
  }
  return made;
}

function slices(device) {
  const list = document.createElement("ul");
  for (const slice of device.slices) {
    const item = document.createElement("li");
    item.append(words(slice.namespace + "/" + slice.name), ` ${slice.percent}%${slice.lane ? ` in lane ${slice.lane}` : ""}, ${slice.memoryMiB} MiB, ${slice.phase}`);
    list.append(item);
  }
  return list;
}

const PARTS = [["computePercent", "compute"], ["communicationPercent", "exposed communication"], ["dataWaitPercent", "data wait"]];

function ranks(trace) {
  const made = document.createElement("div");
  for (const rank of trace.ranks) {
    const bar = document.createElement("div");
    bar.className = "bar";
    bar.setAttribute("aria-hidden", "true"); // the text beside it says the same
    for (const [name] of PARTS) {
      const part = document.createElement("span");
      part.className = name;
      part.style.width = rank[name] + "%";
      bar.append(part);
    }
    const said = PARTS.map(([name, word]) => `${word} ${rank[name]}%`).join(", ");
    made.append(bar, span(`rank ${rank.rank}: ${said}`, "quiet"));
  }
  if (trace.ranksLeftOut) made.append(span(`${trace.ranksLeftOut} more ranks`, "quiet"));
  return made;
}

const ROWS = {
  devices(row, one) {
    cell(row, one.node, "", "th");
    cell(row, [one.index === null ? "-" : String(one.index)]).title = one.uuid;
    cell(row, one.accelerator);
    cell(row, one.health, one.health === "Healthy" ? "word good" : "word bad");
    cell(row, [bar(one), slices(one)], "bars");
    cell(row, one.grantedPercent + "%", "number");
    cell(row, one.headroomPercent + "%", "number");
    cell(row, `${one.grantedMemoryMiB} of ${one.memoryMiB} MiB`, "number");
  },
  queue(row, one) {
    cell(row, workload(one), "", "th");
    cell(row, one.tenant);
    cell(row, String(one.priority), "number");
    cell(row, age(one.ageSeconds), "number");
    cell(row, one.phase, "word");
    cell(row, or(one.reason));
    cell(row, one.whatHelps ? [one.message, document.createElement("br"), span(one.whatHelps, "quiet")] : one.message, "long");
  },
  objectives(row, one) {
    cell(row, workload(one), "", "th");
    cell(row, one.phase, "word");
    cell(row, one.percent + "%", "number");
    cell(row, or(one.maxSlowdown, "x"), "number");
    cell(row, or(one.predicted, "x"), "number");
    cell(row, or(one.upper, "x"), "number");
    const broken = one.maxSlowdown !== "" && Number(one.observed) > Number(one.maxSlowdown);
    cell(row, or(one.observed, "x") + (broken ? " (above)" : ""), broken ? "number bad" : "number");
    cell(row, one.attainment === "" ? "-" : (100 * Number(one.attainment)).toFixed(1) + "%", "number");
  },
  traces(row, one) {
    cell(row, workload(one), "", "th");
    cell(row, age(one.ageSeconds), "number");
    cell(row, or(one.steps), "number");
    cell(row, one.last === null ? "-" : "rank " + one.last);
    cell(row, ranks(one), "bars");
  },
  cost(row, one, state) {
    cell(row, one.tenant, "", "th");
    cell(row, String(one.workloads), "number");
    for (const amount of [one.spent, one.perHour, one.saved]) cell(row, or(amount, " " + state.currency), "number");
    cell(row, age(one.lostSeconds), "number");
  },
};

function show(state) {
  for (const [name, fill] of Object.entries(ROWS)) {
    const { total, items } = state[name];
    const rows = items.map((one) => {
      const row = document.createElement("tr");
      fill(row, one, state);
      return row;
    });
    if (!rows.length) {
      const row = document.createElement("tr");
      cell(row, "nothing here", "quiet").colSpan = 8;
      rows.push(row);
    }
    at(name + "-rows").replaceChildren(...rows);
    const more = total - items.length;
    at(name + "-count").textContent = more ? `${items.length} of ${total}, ${more} more are not shown` : String(total);
  }
}

async function load() {
  try {
    const answer = await fetch("state.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(`the operator answers ${answer.status}`);
    const state = await answer.json();
    show(state);
    at("taken").textContent = "as of " + state.takenAt;
    at("taken").className = "";
  } catch (error) {
    at("taken").textContent = "out of date: " + error.message;
    at("taken").className = "bad";
  }
  setTimeout(load, EVERY_MS);
}

load();
