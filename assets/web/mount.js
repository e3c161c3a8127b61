// Puts a view into its component. The component's template is constant, so what is made here is never touched by it.
(function () {
  "use strict";
  const sv = window.specviz;
  sv.mount = (element, props, watch, server, pick) => {
    const root = element.querySelector(".sv-root") || element;
    if (root.dataset.ready) return;
    root.dataset.ready = "1";
    if (!sv.lang) sv.lang = String(props.lang || "en").startsWith("zh") ? "zh" : "en";
    document.documentElement.lang = sv.lang === "zh" ? "zh-CN" : "en";
    const channel = sv.channel(props.channel || "main");
    const Shown = sv.views[props.view === "inspect" ? "inspect" : "race"];
    const choose = (data) => {
      channel.pinned = data;
      window.dispatchEvent(new CustomEvent("specviz:pick", { detail: data }));
      pick({ run: channel.run, ...data });
    };
    const view = new Shown(root, channel, props.view === "inspect" ? server : choose);
    const feed = () => { if (props.value) channel.feed(props.value); };
    watch("value", feed);
    feed();
    return view;
  };
})();
