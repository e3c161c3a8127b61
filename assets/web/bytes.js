// Token bytes -> what is shown. One character may be spread over several tokens, so text is made from bytes, here.
(function () {
  "use strict";
  const sv = window.specviz;
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  // Bytes of one token from its name in a line: {special, bytes}.
  function parse(name) {
    const special = name.startsWith("!");
    const hex = special ? name.slice(1) : name;
    const bytes = [];
    for (let i = 0; i + 1 < hex.length; i += 2) bytes.push(parseInt(hex.slice(i, i + 2), 16));
    return { special, bytes };
  }
  const hex = (bytes) => bytes.map((b) => b.toString(16).toUpperCase().padStart(2, "0")).join(" ");
  const decode = (bytes) => {
    try { return strict.decode(Uint8Array.from(bytes)); } catch (error) { return null; }
  };
  // How many bytes the character that starts with this one has; 0: no character starts so.
  const size = (lead) => (lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0);

  // Parts of `bytes`: {text} | {bytes} that are no character | {open: bytes} a character that has only begun, at the end.
  function split(bytes) {
    const parts = [];
    let good = [], bad = [];
    const flush = () => {
      if (good.length) parts.push({ text: decode(good) });
      if (bad.length) parts.push({ bytes: bad });
      good = []; bad = [];
    };
    for (let i = 0; i < bytes.length; ) {
      const n = size(bytes[i]);
      const piece = bytes.slice(i, i + n);
      if (n && piece.length === n && decode(piece) !== null) {
        if (bad.length) flush();
        good.push(...piece);
        i += n;
      } else if (n > 1 && piece.length < n && piece.slice(1).every((b) => (b & 0xc0) === 0x80)) {
        flush();
        parts.push({ open: piece });
        return parts;
      } else {
        if (good.length) flush();
        bad.push(bytes[i]);
        i += 1;
      }
    }
    flush();
    return parts;
  }

  // Gives every token of a stream its parts. A completed character belongs to the token that began it; the tokens that
  // finished it keep a {rest} part. push() returns the earlier tokens whose parts changed.
  class Joiner {
    constructor() { this.open = []; this.owners = []; }
    push(token) {
      if (token.special) {
        this.open = []; this.owners = [];
        token.parts = [{ pill: decode(token.bytes) ?? hex(token.bytes) }];
        return [];
      }
      if (!this.owners.length) {
        token.parts = split(token.bytes);
        const last = token.parts[token.parts.length - 1];
        if (last && last.open) { this.open = last.open; this.owners = [token]; }
        return [];
      }
      const parts = split(this.open.concat(token.bytes));
      const first = parts[0] || {};
      if (first.open) { // still not complete
        token.parts = [{ open: token.bytes }];
        this.open = first.open;
        this.owners.push(token);
        return [];
      }
      const before = this.owners, began = this.open.length;
      this.open = []; this.owners = [];
      const last = parts[parts.length - 1];
      if (first.text === undefined || first.text === null) { // the character never came: each token keeps its own bytes
        token.parts = split(token.bytes);
        for (const one of before) for (const part of one.parts) if (part.open) { part.bytes = part.open; delete part.open; }
      } else {
        const character = String.fromCodePoint(first.text.codePointAt(0));
        before.forEach((one, k) => {
          one.parts = one.parts.filter((part) => !part.open);
          one.parts.push(k === 0 ? { text: character } : { rest: true });
        });
        const used = new TextEncoder().encode(character).length - began;
        token.parts = [{ rest: true }, ...split(token.bytes.slice(used))];
      }
      const end = token.parts[token.parts.length - 1];
      if (last && last.open && end && end.open) { this.open = end.open; this.owners = [token]; }
      return before;
    }
  }

  const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufe00-\ufe0f\ufeff\ufff9-\ufffb]/u;

  // Nodes of a token's parts. glyphs: spaces and newlines get a visible sign.
  function nodes(parts, glyphs) {
    const made = [];
    for (const part of parts) {
      if (part.pill !== undefined) made.push(sv.h("span", { class: "sv-pill" }, part.pill));
      else if (part.rest) made.push(sv.h("span", { class: "sv-rest", title: sv.t("token.rest") }, "‥"));
      else if (part.open || part.bytes) made.push(sv.h("span", { class: "sv-hex" + (part.open ? " sv-open" : "") }, hex(part.open || part.bytes)));
      else made.push(...signs(part.text, glyphs));
    }
    if (!made.length) made.push(sv.h("span", { class: "sv-hex" }, "∅"));
    return made;
  }
  function signs(text, glyphs) {
    const made = [];
    let plain = "";
    const flush = () => { if (plain) made.push(document.createTextNode(plain)); plain = ""; };
    const sign = (shown) => { flush(); made.push(sv.h("span", { class: "sv-sign" }, shown)); };
    for (const c of text) {
      if (c === "\n") { sign("↵"); if (!glyphs) plain += "\n"; }
      else if (c === "\t") { sign("⇥"); if (!glyphs) plain += "\t"; }
      else if (c === " " && glyphs) sign("·");
      else if (glyphs && INVISIBLE.test(c)) { flush(); made.push(sv.h("span", { class: "sv-hex" }, "U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0"))); }
      else plain += c;
    }
    flush();
    return made;
  }

  // One token alone, out of its context (drafts, alternatives): {parts, bytes, special, label}.
  function single(name) {
    const token = parse(name);
    new Joiner().push(token);
    token.label = label(token.parts);
    return token;
  }
  // Plain words for screen readers and chart titles.
  function label(parts) {
    const words = parts.map((part) => part.pill ?? part.text ?? (part.rest ? "‥" : hex(part.open || part.bytes || [])));
    return words.join("").replace(/\n/g, "↵").replace(/\t/g, "⇥") || "∅";
  }
  sv.bytes = { parse, hex, split, Joiner, nodes, single, label };
})();
