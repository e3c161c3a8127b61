// Shared ground of the page's views: node makers (text only, never markup), languages, numbers, counters.
(function () {
  "use strict";
  const sv = (window.specviz = { channels: {}, tables: {}, views: {}, stats: {} });
  const SVG = "http://www.w3.org/2000/svg";

  Object.assign(sv.stats, {
    frames: 0, tokens: 0, iterations: 0, lanes: 0, run: "", ended: 0, details: 0, bad: 0, last: 0,
    race: { rendered: 0 },
    inspect: { rendered: 0, lane: "", index: -1, token: -1, playing: false, shown: "" },
  });

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
      else node.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat(4)) {
      if (child === null || child === undefined || child === false) continue;
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
  }
  sv.h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  sv.s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  sv.put = (node, ...children) => {
    node.textContent = "";
    return fill(node, null, children);
  };
  sv.text = (node, value) => {
    if (node.textContent !== value) node.textContent = value;
  };

  // ---- language --------------------------------------------------------------------------------------------------
  function firstLanguage() {
    const asked = new URLSearchParams(location.search).get("lang");
    if (asked) return asked.startsWith("zh") ? "zh" : "en";
    let kept = null;
    try { kept = localStorage.getItem("specviz.lang"); } catch (error) { kept = null; }
    if (kept === "en" || kept === "zh") return kept;
    return (navigator.language || "").startsWith("zh") ? "zh" : "";
  }
  sv.lang = firstLanguage();
  sv.setLang = (lang) => {
    const next = String(lang).startsWith("zh") ? "zh" : "en";
    try { localStorage.setItem("specviz.lang", next); } catch (error) { /* private mode: not remembered */ }
    window.dispatchEvent(new CustomEvent("specviz:lang", { detail: { lang: next } }));
  };
  window.addEventListener("specviz:lang", (event) => {
    sv.lang = event.detail && String(event.detail.lang).startsWith("zh") ? "zh" : "en";
    document.documentElement.lang = sv.lang === "zh" ? "zh-CN" : "en";
    for (const channel of Object.values(sv.channels)) channel.touch(true);
  });
  // Numbers stand in braces in the tables: "token {n}". They are put in as text, so a value cannot become a placeholder.
  sv.t = (key, values) => {
    const table = sv.tables[sv.lang || "en"] || {};
    const pattern = Object.hasOwn(table, key) ? table[key] : sv.has(key) ? sv.tables.en[key] : key;
    return pattern.replace(/\{(\w+)\}/g, (whole, name) => (values && name in values ? String(values[name]) : whole));
  };
  // What the program says it is doing, in the page's language: known by its English words, in which {what} stands for a name.
  sv.said = (sentence) => {
    for (const [key, words] of Object.entries(sv.tables.en || {})) {
      const [before, after = ""] = words.split("{what}"), what = sentence.slice(before.length, sentence.length - after.length);
      if (key.startsWith("program.") && sentence === words.replace("{what}", () => what)) return sv.t(key, { what });
    }
    return sentence;
  };
  // own strings only: an opened file may name its method "constructor"
  sv.has = (key) => Object.hasOwn(sv.tables.en || {}, key);

  // ---- numbers ---------------------------------------------------------------------------------------------------
  const finite = (x) => typeof x === "number" && Number.isFinite(x);
  sv.finite = finite;
  sv.fixed = (x, digits) => (finite(x) ? x.toFixed(digits) : "–");
  sv.settings = (s) => {
    const shown = [`T = ${s.temperature}`];
    if (s.top_k) shown.push(`top-k ${s.top_k}`);
    if (s.top_p < 1) shown.push(`top-p ${s.top_p}`);
    if (s.min_p > 0) shown.push(`min-p ${s.min_p}`);
    if (s.repetition_penalty !== 1 && s.repetition_penalty !== undefined) shown.push(sv.t("settings.penalty", { n: s.repetition_penalty }));
    return shown.join(", ");
  };
  // A setting as the form calls it. Where a value stands for something else, as 0 for automatic, there are words for that.
  sv.knob = (method, name, value) => {
    const meaning = `knob.${name}.${value}`, label = [`page.f.${method}.${name}`, `page.f.${name}`].find(sv.has);
    return sv.has(meaning) ? sv.t(meaning) : `${label ? sv.t(label) : name} ${value}`;
  };
  sv.percent = (x) => (finite(x) ? (100 * x).toFixed(x > 0 && x < 0.0995 ? 1 : 0) + " %" : "–");
  // A probability: three digits, more where the number is small; 0 and 1 only when they are exact.
  sv.prob = (x, digits = 3) => {
    if (!finite(x)) return "–";
    if (x === 0 || x === 1) return String(x);
    if (x < 0.001) return x.toExponential(1).replace("e-", "e−");
    const shown = x < 0.1 ? x.toPrecision(digits) : x.toFixed(digits);
    return shown.startsWith("1") && x < 1 ? "0." + "9".repeat(digits) + "…" : shown;
  };
  // Two probabilities that are compared must not look equal when they are not.
  sv.pair = (a, b) => {
    for (let digits = 3; digits < 12; digits++) {
      const shown = [sv.prob(a, digits), sv.prob(b, digits)];
      if (shown[0] !== shown[1] || a === b) return shown;
    }
    return [String(a), String(b)];
  };
  sv.seconds = (x) => {
    if (!finite(x)) return "–";
    if (x < 0.0995) return (1000 * x).toFixed(x < 0.00995 ? 1 : 0) + " ms";
    return x.toFixed(x < 9.995 ? 2 : 1) + " s";
  };
  sv.speed = (x) => (finite(x) ? x.toFixed(x < 99.95 ? 1 : 0) : "–");

  // ---- drawing: at most once a frame, whatever arrives --------------------------------------------------------------
  const waiting = new Set();
  let asked = false;
  sv.soon = (draw) => {
    waiting.add(draw);
    if (asked) return;
    asked = true;
    const go = () => {
      if (!asked) return;
      asked = false;
      const now = [...waiting];
      waiting.clear();
      for (const one of now) one();
      sv.stats.frames += 1;
      sv.stats.last = performance.now();
    };
    requestAnimationFrame(go);
    setTimeout(go, 250); // a tab in the background gets no frames, but its counters stay true
  };
})();
