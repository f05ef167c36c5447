"use strict";
// The page reads without this. Here: another level, search, sorting, tabs. Nothing from the data is ever parsed as HTML.
(() => {
  const SVG = document.querySelector("svg")?.namespaceURI;
  const make = (tag, attributes = {}, text) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const draw = (tag, attributes, text) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const ink = (cluster) =>
    cluster > 0 ? `var(--c${((cluster - 1) % 5) + 1})` : cluster === 0 ? "var(--ink)" : "var(--muted)";
  const unrolled = (runs) => {
    const made = [];
    for (let i = 0; i < runs.length; i += 2) for (let n = 0; n < runs[i + 1]; n++) made.push(runs[i]);
    return made;
  };
  // Names from right to left are kept apart from what stands beside them.
  const letters = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}";
  const leftward = new RegExp(`([${letters}]+(?:[\\s\\d'’"״׳.&/–-]+[${letters}]+)*)`, "u");
  const say = (place, words) =>
    place.replaceChildren(...words.split(leftward).map((part, i) => (i % 2 ? make("bdi", {}, part) : part)));
  const chip = (cluster) => make("span", { class: `chip k${((cluster - 1) % 5) + 1}` }, String(cluster));

  // ------------------------------------------------------------------------------------------ one shape of a layer
  const shape = {
    rect: ([x, y, x2, y2, cluster], look) =>
      draw("rect", {
        x: Math.min(x, x2), y: Math.min(y, y2), width: Math.abs(x2 - x), height: Math.abs(y2 - y),
        style: `fill:${ink(cluster)};opacity:${look.opacity}`,
      }),
    rule: ([x, y, x2, y2, cluster], look) =>
      draw("line", {
        x1: x, y1: y, x2, y2,
        style: `stroke:${ink(cluster)};stroke-width:${look.strokeWidth};stroke-dasharray:${look.strokeDash ?? "none"}`,
      }),
    line: ([points, cluster], look) =>
      draw("polygon", {
        points,
        style: `fill:${ink(cluster)};stroke:${ink(cluster)};stroke-width:${look.strokeWidth};fill-opacity:${look.fillOpacity}`,
      }),
    text: ([x, y, cluster, align, words], look) =>
      draw("text", {
        x, y, "font-family": "Helvetica, Arial, sans-serif", "dominant-baseline": "central",
        "text-anchor": { left: "start", center: "middle", right: "end" }[align],
        style: `fill:${ink(cluster)};font-size:${look.fontSize}px;font-weight:${look.fontWeight ?? "normal"}`,
      }, words),
  };

  const redraw = (picture, { kinds, shapes, hollow }, { styles, filled }) => {
    const marks = picture.querySelector(".role-frame > g > g");
    for (const [layer, rows] of Object.entries(shapes)) {
      const old = marks.querySelectorAll(
        `:scope > [class*=" ${layer}_marks"], :scope > [class*=" ${layer}_pathgroup"], :scope > [class*=" ${layer}_center_marks"]`);
      const look = styles[layer];
      if (typeof rows[0] === "number") {  // coloured anew
        const children = [...old].flatMap((group) => [...group.querySelectorAll("path, line, text")]
          .filter((mark) => !["background", "foreground"].includes(mark.getAttribute("class"))));
        const open = unrolled(hollow[layer] ?? []);
        unrolled(rows).forEach((cluster, i) => {
          const mark = children[i];
          if (!mark) return;
          if (mark.getAttribute("stroke")) mark.style.stroke = ink(cluster);
          if (mark.getAttribute("fill")) mark.style.fill = open[i] && kinds[layer] === "circle" ? "var(--paper)" : ink(cluster);
          if (layer in hollow && kinds[layer] === "line") mark.style.fillOpacity = open[i] ? 0 : filled;
        });
        continue;
      }
      let live = marks.querySelector(`:scope > .live-${layer}`);
      if (!live) {
        live = draw("g", { class: `live-${layer}` });
        if (old.length) old[old.length - 1].after(live); else marks.append(live);
        for (const group of old) group.style.display = "none";
      }
      live.replaceChildren(...rows.map((row) => shape[kinds[layer]](row, look)));
    }
  };

  // ------------------------------------------------------------------------------------------------------ one result
  for (const section of document.querySelectorAll("section.result")) {
    const find = (what) => section.querySelector(`[data-is="${what}"]`);
    const data = JSON.parse(find("data").textContent);
    const pictures = [...section.querySelectorAll('[data-is="picture"]')];
    const table = find("groups");
    const rows = [...table.tBodies[0].rows];
    const slider = find("slider");

    const column = (key) => [...table.tHead.rows[0].cells].findIndex((cell) => cell.dataset.key === key);
    const followers = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.key).filter((key) => key && key !== "cluster");
    const standing = (words) =>
      words ? [" ", make("span", { class: `standing${words.startsWith("worse") ? " worse" : ""}` }, words)] : [];
    const line = (words) => {
      const made = make("p");
      say(made, words);
      return made;
    };

    const tellDecision = (level) => {
      say(find("lead"), level.lead);
      for (const what of ["described", "evidence"]) {
        find(what).hidden = find(`${what}-term`).hidden = !level[what].length;
      }
      find("evidence").replaceChildren(...level.evidence.map(line));
      find("uncertain").replaceChildren(...level.uncertain.map(line));
      const made = level.described.map(([cluster, effect, who, size, words]) => {
        const about = line(who);
        about.prepend(chip(cluster), " ", ...(effect ? [make("strong", {}, effect)] : []), ...standing(words), " ");
        about.append(" ", make("span", { class: "small" }, `(${size})`));
        return about;
      });
      const between = `… ${level.between} more clusters between, in the table below`;
      if (level.between) made.splice(made.length / 2, 0, make("p", { class: "small" }, between));
      find("described").replaceChildren(...made);
    };

    const tellClusters = (level, labels) => {
      const body = find("clusters").tBodies[0];
      const heads = [...find("clusters").tHead.rows[0].cells];
      level.header.forEach((name, i) => { heads[i].textContent = name; });
      body.replaceChildren(...level.rows.flatMap((cells, i) => {
        const row = make("tr", { class: "cluster" });
        cells.forEach((cell, j) => {
          const made = row.insertCell();
          made.className = "number";
          made.dataset.label = level.header[j];
          if (j === 0) made.append(chip(Number(cell))); else made.textContent = cell;
        });
        row.insertCell();
        const who = make("tr", { class: "who" });
        const about = who.insertCell();
        about.colSpan = heads.length;
        const details = make("details", { class: "members" });
        details.append(make("summary", {}, data.members));
        const names = data.names.length ? data.names.filter((_, place) => labels[place] === i + 1).join(", ") : level.members[i];
        details.append(line(names));
        const rule = make("span", { class: "rule" });
        say(rule, level.rules[i]);
        const wide = make("div", { class: "wide" });
        wide.append(rule, ...standing(level.harm_statuses[i]), details);
        about.append(wide);
        return [row, who];
      }));
      const all = make("tr", { class: "cluster all" });
      level.overall.forEach((cell, j) => all.append(make("td", { class: "number", "data-label": level.header[j] }, cell)));
      all.insertCell();
      body.append(all);
    };

    let shown = data.now;
    const show = (now) => {
      shown = now;
      slider.value = now;
      find("exploring").hidden = now === data.now;
      find("along")?.classList.toggle("stale", now !== data.now);
      const level = data.levels[now];
      const partition = data.partitions[level.partition];
      const labels = unrolled(partition.labels);
      const count = level.rows.length;
      find("level").textContent = `α = ${level.alpha}: ${count} cluster${count === 1 ? "" : "s"}`;
      tellDecision(level);
      pictures.forEach((picture, i) => redraw(picture, partition.drawn[i], data));
      tellClusters(level, labels);
      for (const row of section.querySelectorAll('[data-is="phone"] tr[data-place]')) {
        const colour = `k${((labels[Number(row.dataset.place)] - 1) % 5) + 1}`;
        for (const mark of row.querySelectorAll(".range, .point")) mark.className = `${mark.classList[0]} ${colour}`;
      }
      const chips = column("cluster");
      labels.forEach((cluster, place) => {
        const cell = rows[place].cells[chips];
        cell.replaceChildren(chip(cluster));
        cell.dataset.v = cluster;
      });
      for (const key of followers) {
        const place = column(key);
        const cells = unrolled(partition.posterior_cells[key] ?? ["–", rows.length]);
        rows.forEach((row, i) => {
          const cell = row.cells[place];
          cell.textContent = cells[i];
          const [low, high] = cells[i].split(" … ").map((part) => parseFloat(part.replace(/[,<> ]/g, "")) || 0);
          cell.dataset.v = high === undefined ? low : high - low;
        });
      }
      slider.setAttribute("aria-valuetext", find("level").textContent);
      sort();
    };
    slider.value = data.now;
    find("controls").hidden = false;
    find("level").textContent = `α = ${data.levels[data.now].alpha}: ${data.levels[data.now].rows.length} clusters`
      .replace(/: 1 clusters$/, ": 1 cluster");
    slider.addEventListener("input", () => show(Number(slider.value)));
    find("back").addEventListener("click", () => show(data.now));
    // What is printed is what the page claims, with all members.
    window.addEventListener("beforeprint", () => {
      const before = shown;
      if (before !== data.now) show(data.now);
      const several = document.body.classList.contains("several");  // of which each is printed in short
      const closed = several ? [] : [...section.querySelectorAll("details.members:not([open])")];
      for (const one of closed) one.open = true;
      window.addEventListener("afterprint", () => {
        for (const one of closed) one.open = false;
        if (before !== data.now) show(before);
      }, { once: true });
    });

    // A name for every dot, where there is one for every group
    const dots = pictures.length ? [...pictures[0].querySelectorAll(".points_marks path")] : [];
    if (dots.length === data.names.length) dots.forEach((dot, i) => dot.append(draw("title", {}, data.names[i])));

    // Search
    // Names only, read when first searched: of thousands of rows it takes a while
    const name = (row) => [...row.querySelectorAll(".name")].map((cell) => cell.textContent).join(" ").toLocaleLowerCase();
    let texts;
    let chosen = [];
    const search = find("search");
    const found = find("found");
    const filter = () => {
      const wanted = search.value.toLocaleLowerCase().split(/[\s·]+/).filter(Boolean);
      texts ??= rows.map(name);
      let hits = 0;
      rows.forEach((row, i) => {
        row.hidden = !(wanted.every((word) => texts[i].includes(word))
          && chosen.every(([place, level]) => row.cells[place].textContent === level));
        hits += !row.hidden;
      });
      const among = chosen.length ? `${chosen.map(([, level]) => level).join(", ")}: ` : "";
      found.textContent = wanted.length || chosen.length ? `${among}${hits} of ${rows.length}` : "";
    };
    find("searching").hidden = false;
    search.addEventListener("input", filter);
    // A click on a level shows its groups, and the same click again all of them.
    const choices = [...section.querySelectorAll("[data-filter]")].map((place) => {
      const button = make("button", { type: "button", class: "level", "aria-pressed": "false" });
      button.replaceChildren(...place.childNodes);
      place.replaceWith(button);
      button.addEventListener("click", () => {
        const again = button.getAttribute("aria-pressed") === "true";
        for (const other of choices) other.setAttribute("aria-pressed", "false");
        chosen = again ? [] : JSON.parse(place.dataset.filter);
        button.setAttribute("aria-pressed", String(!again));
        filter();
        if (!again) search.scrollIntoView({ block: "center" });
      });
      return button;
    });
    if (choices.length) find("hint").hidden = false;

    // Sorting
    const heads = [...table.tHead.rows[0].cells];
    const sort = () => {
      const column = heads.findIndex((head) => head.hasAttribute("aria-sort"));
      if (column < 0) return;
      const falling = heads[column].getAttribute("aria-sort") === "descending";
      const key = (row) => {
        const cell = row.cells[column];
        return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
      };
      const order = rows.map((row, i) => [key(row), i]);
      order.sort(([a, i], [b, j]) => {
        const by = typeof a === "number" && typeof b === "number" ? a - b
          : String(a).localeCompare(String(b), undefined, { numeric: true });
        return (falling ? -by : by) || i - j;
      });
      table.tBodies[0].append(...order.map(([, i]) => rows[i]));
    };
    heads.forEach((head) => {
      const button = make("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const way = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", way);
        sort();
      });
    });
  }

  // ------------------------------------------------------------------------------------------------------------ tabs
  const tabs = [...document.querySelectorAll("[data-tab]")];
  const choose = (key) => {
    if (!tabs.some((tab) => tab.dataset.tab === key)) return;
    for (const tab of tabs) tab.setAttribute("aria-selected", String(tab.dataset.tab === key));
    for (const section of document.querySelectorAll("section.result")) section.hidden = section.id !== key;
  };
  if (tabs.length) {
    choose(location.hash.slice(1) || tabs[0].dataset.tab);
    if (!document.querySelector('[aria-selected="true"]')) choose(tabs[0].dataset.tab);
    window.addEventListener("hashchange", () => {
      choose(location.hash.slice(1) || tabs[0].dataset.tab);
      document.querySelector("nav.tabs").scrollIntoView();
    });
  }
})();
