// The shell around the views: labels in two languages, reasons for disabled controls, the address, status, theme, saving.
// Everything here runs in the browser alone, so it costs whoever is decoding nothing. Text is only ever written as text.
(function () {
  "use strict";
  const sv = window.specviz;
  const page = (sv.page = { spec: null, last: {}, draw: null });
  const SHORT = { temperature: "t", repetition_penalty: "rp", max_new: "n", template: "as", mode: "record" };
  const LONGEST = 300; // characters of a prompt that still go into the address
  const same = { __type__: "update" };
  const lang = () => sv.lang || "en";
  const known = (key) => sv.t(key) !== key;
  const text = (key, facts, otherwise) => (known(key) ? sv.t(key, facts) : otherwise);
  const kept = (key, value) => {
    try {
      if (value === undefined) return localStorage.getItem(key);
      localStorage.setItem(key, value);
    } catch (error) { /* private mode: not remembered */ }
    return null;
  };

  // ---- header: language, theme, link -------------------------------------------------------------------------------
  const dark = () => document.body.classList.contains("dark");
  let themed = false;
  page.header = (element) => {
    if (!themed && !new URLSearchParams(location.search).has("__theme") && kept("specviz.theme")) {
      document.body.classList.toggle("dark", kept("specviz.theme") === "dark");
    }
    themed = true;
    document.documentElement.lang = lang() === "zh" ? "zh-CN" : "en";
    for (const node of element.querySelectorAll("[data-t]")) node.textContent = sv.t(node.dataset.t);
    for (const node of element.querySelectorAll("[data-label]")) {
      node.setAttribute("aria-label", sv.t(node.dataset.label));
      node.title = sv.t(node.dataset.label);
    }
    const toggle = element.querySelector("#pg-lang");
    if (toggle) {
      toggle.textContent = lang() === "zh" ? "English" : "中文";
      toggle.lang = lang() === "zh" ? "en" : "zh-CN";
    }
  };
  page.tool = async (button, element) => {
    if (!button) return;
    if (button.id === "pg-lang") {
      const next = lang() === "zh" ? "en" : "zh";
      address((query) => query.set("lang", next));
      sv.setLang(next);
    } else if (button.id === "pg-theme") {
      document.body.classList.toggle("dark");
      kept("specviz.theme", dark() ? "dark" : "light");
      window.dispatchEvent(new CustomEvent("specviz:theme"));
    } else if (button.id === "pg-link") {
      let copied = true;
      try { await navigator.clipboard.writeText(location.href); } catch (error) { copied = false; }
      button.textContent = sv.t(copied ? "page.link.copied" : "page.link.bar");
      setTimeout(() => page.header(element), 1800);
    }
  };

  // ---- the address -------------------------------------------------------------------------------------------------
  function address(change) {
    const query = new URLSearchParams(location.search);
    change(query);
    const written = query.toString();
    history.replaceState(history.state, "", location.pathname + (written ? "?" + written : "") + location.hash);
  }
  const param = (name) => SHORT[name] || name;
  const knob = (name) => (name.includes(".") ? name.split(".")[1] : null);
  let waiting = 0;
  page.remember = (...values) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => address((query) => write(query, values)), 250);
    return [];
  };
  function write(query, values) {
    const knobs = {};
    page.spec.fields.forEach((name, i) => {
      const value = values[i], given = Array.isArray(value) ? value.join(",") : value;
      const standard = page.spec.defaults[name], usual = Array.isArray(standard) ? standard.join(",") : standard;
      if (knob(name)) (knobs[knob(name)] = knobs[knob(name)] || []).push([name, given, given !== usual]);
      if (given === usual || given === null || given === undefined || (name === "prompt" && given.length > LONGEST)) query.delete(param(name));
      else query.set(param(name), given);
    });
    // A knob that all drafters share and that stands alike in all of them needs its short name only.
    for (const [short, found] of Object.entries(knobs)) {
      query.delete(short);
      if (found.some((one) => one[2]) && found.every((one) => one[1] === found[0][1])) {
        for (const one of found) query.delete(one[0]);
        query.set(short, found[0][1]);
      }
    }
  }
  page.restore = () => {
    const query = new URLSearchParams(location.search);
    return page.spec.fields.map((name) => {
      const written = query.has(param(name)) ? query.get(param(name)) : knob(name) && query.has(knob(name)) ? query.get(knob(name)) : null;
      if (written === null) return same;
      const standard = page.spec.defaults[name];
      const accepted = page.spec.allowed[name];
      if (Array.isArray(standard)) {
        return { __type__: "update", value: written.split(",").filter((one) => page.spec.methods.includes(one)).slice(0, 3) };
      }
      if (typeof standard === "boolean") return { __type__: "update", value: written === "true" };
      if (typeof standard === "number") {
        const number = Number(written), [low, high] = page.spec.ranges[name] || [];
        const fits = Number.isFinite(number) && number >= (low ?? number) && number <= (high ?? number);
        return written.trim() !== "" && fits ? { __type__: "update", value: number } : same;
      }
      return accepted && !accepted.includes(written) ? same : { __type__: "update", value: written };
    });
  };

  // ---- labels, reasons, visibility ---------------------------------------------------------------------------------
  function reason(name, get) {
    if (["top_k", "top_p", "min_p", "seed"].includes(name) && get("temperature") === 0) return sv.t("page.why.greedy");
    if (name === "rule" && !get("methods").length) return sv.t("page.why.nodraft");
    if (["device", "dtype"].includes(name) && page.spec.allowed[name].length < 2) return sv.t("page.why.fixed");
    if (name === "template" && (page.spec.targets[get("target")] || {}).chat === false) return sv.t("page.why.nochat");
    return "";
  }
  function dressed(name, how, get) {
    const update = { __type__: "update" };
    const bare = knob(name) || name;
    if (name.startsWith("group.")) return { ...update, visible: get("methods").includes(name.slice(6)) };
    if (name.startsWith("title.")) {
      const method = name.slice(6), [what, paper] = ["what", "paper"].map((part) => text(`method.${method}.${part}`, null, ""));
      return { ...update, value: `**${text("page.method." + method, null, method)}**` + (what && `  \n${what}`) + (paper && ` *${paper}*`) };
    }
    if (name === "fold_draft") update.visible = get("methods").length > 0;
    update[how.prop] = text("page.f." + name, null, text("page.f." + bare, null, bare));
    const missing = name === "methods" ? (page.spec.targets[get("target")] || {}).missing || [] : [];
    if (how.choices) update.choices = how.choices.filter(([, value]) => !missing.includes(value)).map(([key, value]) => [text(key, null, value), value]);
    if (how.info) {
      const why = reason(name, get);
      const usual = text("page.i." + name, null, text("page.i." + bare, null, how.text));
      update.info = why || (missing.length ? sv.t("page.why.missing", { names: missing.map((one) => text("page.method." + one, null, one)).join(", ") }) : usual);
      if (name === "target") update.info = ((page.spec.targets[get("target")] || {}).note || {})[lang()] || usual;
      update.interactive = !why;
    }
    if (name === "prompt") update.placeholder = sv.t("page.prompt.empty");
    return update;
  }
  page.dress = (...values) => {
    state(document.body.dataset.run || "idle"); // the buttons may have been drawn after the status
    const get = (name) => values[page.spec.fields.indexOf(name)] ?? page.spec.defaults[name];
    return page.spec.dressed.map(([name, how]) => {
      const update = dressed(name, how, get), written = JSON.stringify(update);
      if (page.last[name] === written) return same;
      page.last[name] = written;
      return update;
    });
  };
  page.example = (name) => {
    const chosen = page.spec.examples[name] || {};
    return page.spec.fields.map((field) => (field in chosen ? { __type__: "update", value: chosen[field] } : same));
  };

  // ---- status --------------------------------------------------------------------------------------------------------
  let stopping = false;
  const going = () => ["queued", "busy"].includes(document.body.dataset.run);
  function state(name) {
    const changed = document.body.dataset.run !== name;
    document.body.dataset.run = name;
    document.getElementById("run")?.setAttribute("aria-disabled", going());
    document.getElementById("stop")?.setAttribute("aria-disabled", !going());
    if (changed) window.dispatchEvent(new CustomEvent("specviz:state", { detail: { state: name } }));
  }
  page.status = (element, value) => {
    const root = element.querySelector(".pg-status");
    if (!root || !value) return;
    if (value.state !== "busy") stopping = false;
    else if (stopping && value.key !== "page.st.stopping") return; // sent before Stop was heard
    delete element.dataset.place;
    page.draw = () => page.status(element, value);
    const facts = { ...value };
    if (facts.name) facts.name = text("page.f." + facts.name, null, text("page.f." + knob(facts.name), null, facts.name));
    if (value.key === "page.st.loading") facts.text = sv.said(facts.text || "");
    if (facts.method) facts.method = text("page.method." + facts.method, null, facts.method);
    const bar = sv.finite(value.bar) ? sv.h("progress", { max: 1, value: Math.max(0, Math.min(1, value.bar)), "aria-label": sv.t(value.key, facts) }) : null;
    sv.put(root, sv.h("span", { class: "pg-dot" }), sv.h("span", { class: "pg-say" }, sv.t(value.key, facts)), bar);
    root.dataset.state = value.state || "idle";
    state(value.state || "idle");
    // The server answers within seconds even where what it does takes longer; then it is asked again, until it is over.
    if (value.key === "page.st.stopping") setTimeout(() => { if (stopping) page.again?.(); }, 300);
  };
  function say(name, key, facts) {
    const root = document.querySelector(".pg-status");
    if (!root) return;
    sv.put(root, sv.h("span", { class: "pg-dot" }), sv.h("span", { class: "pg-say" }, sv.t(key, facts)));
    root.dataset.state = name;
    state(name);
  }
  page.started = () => {
    stopping = false;
    page.draw = () => say("queued", "page.st.queued");
    page.draw();
    // On a small screen the lanes start below the fold: bring them up, as whoever pressed Run wants to watch.
    const tabs = document.getElementById("tabs");
    if (tabs && tabs.getBoundingClientRect().top > 0.45 * innerHeight) {
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      tabs.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
    }
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !going()) document.getElementById("run")?.click();
  });
  // The framework opens a list at any key, Tab among them, and one that was left that way stays open over the page.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Tab" && event.target.matches("[role=combobox]")) event.stopPropagation();
  }, true);
  // Said at once, before the server answers: what is going on may be a step that has to end first.
  page.stopping = () => {
    if (going()) {
      stopping = true;
      page.draw = () => say("busy", "page.st.stopping");
      page.draw();
    }
    return [];
  };
  // The framework's own marks of queue and failure lie over the status and speak another language: they are hidden (page.css),
  // and what they know is read from them. Numbers such as 1/2 are the place in the queue.
  page.follow = (element) => {
    const look = () => {
      const tracker = element.parentElement.parentElement.querySelector("[data-testid=status-tracker]");
      if (!tracker || !going() || stopping) return;
      if (tracker.querySelector(".error")) {
        page.draw = () => say("refused", "page.st.lost");
        page.draw();
        return;
      }
      const place = /(\d+)\/(\d+)/.exec(tracker.textContent);
      if (!place || document.body.dataset.run !== "queued") return;
      const [, n, of] = place;
      if (element.dataset.place === place[0] + lang()) return;
      element.dataset.place = place[0] + lang();
      page.draw = () => say("queued", "page.st.place", { n, of });
      page.draw();
    };
    new MutationObserver(look).observe(element.parentElement.parentElement, { subtree: true, childList: true, characterData: true });
  };

  // ---- charts: asked for when they are visible and something they show has changed -----------------------------------
  page.charts = (element, props, watch, ask) => {
    const select = element.querySelector("#pg-lane"), note = element.querySelector("p");
    let asked = "", lane = "";
    const look = () => {
      page.header(element);
      if (!element.isConnected || element.getBoundingClientRect().height === 0) return;
      const wanted = { run: sv.stats.run, lane, lang: lang(), dark: dark() };
      const written = JSON.stringify([wanted, going()]);
      if (written === asked || going()) return;
      asked = written;
      ask(wanted);
    };
    const draw = () => {
      const value = props.value || { lanes: [] };
      lane = value.lane || "";
      sv.put(select, value.lanes.map(([key, label]) => sv.h("option", { value: key, selected: key === lane }, sv.t(label))));
      select.parentElement.hidden = value.lanes.length < 2;
      note.textContent = value.lanes.length ? "" : sv.t("page.charts.none");
      asked = JSON.stringify([{ run: sv.stats.run, lane, lang: lang(), dark: dark() }, going()]);
    };
    select.addEventListener("change", () => { lane = select.value; look(); });
    watch("value", draw);
    for (const event of ["specviz:lang", "specviz:theme", "specviz:state"]) window.addEventListener(event, () => setTimeout(look, 60));
    new IntersectionObserver(look).observe(element);
    draw();
    asked = "";
    look();
  };

  // ---- saving --------------------------------------------------------------------------------------------------------
  page.save = async (fetchText, element) => {
    const run = sv.stats.run;
    let content = "";
    try { content = run ? await fetchText(run) : ""; } catch (error) { content = ""; }
    if (!content) {
      element.querySelector("button").textContent = sv.t("page.save.gone");
      setTimeout(() => page.header(element), 2500);
      return;
    }
    const link = sv.h("a", { href: URL.createObjectURL(new Blob([content], { type: "application/x-ndjson" })), download: "specviz-" + run.slice(0, 6) + ".jsonl" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
})();
