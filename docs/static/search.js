/* Ranks pages by how many of a question's words they have: rare words count more, and words of titles most.
   Sphinx's own ranking wants every word on a page, and then looks at one of them. */
"use strict";

const WEIGHTS = { title: 4, heading: 2, text: 1 };
/* People ask for guides first; who looks for a function types its name. */
const FOLDERS = { api: 0.5, commands: 0.8, notebooks: 0.8, project: 0.4 };
const MOST = 60; /* an object whose name was typed has some 20 points */

/* Excerpts come from the pages, which a browser does not fetch where they were opened as files. */
if (location.protocol === "file:")
  window.fetch = async (address) => ({
    text: async () => `<div role="main">${_escapeHTML(TEXTS[address] ?? "")}</div>`,
  });

Search.performTermsSearch = (searchTerms, excludedTerms) => {
  const { terms, titleterms, titles, docnames, filenames } = Search._index;
  const stemmer = new Stemmer();
  const titleWords = titles.map(
    (title) => new Set(splitQuery(title.toLowerCase()).map((word) => stemmer.stemWord(word))),
  );
  /* Files of an index with a word, or with words that contain it where there is none. */
  const filesWith = (index, word) => {
    const found = Object.hasOwn(index, word)
      ? [index[word]]
      : Object.keys(index).filter((key) => word.length > 2 && key.includes(word)).map((key) => index[key]);
    return new Set(found.flat());
  };

  const scores = new Map();
  let total = 0;
  for (const word of searchTerms) {
    const inText = filesWith(terms, word);
    const inHeadings = filesWith(titleterms, word);
    const files = new Set([...inText, ...inHeadings]);
    const rarity = Math.log(1 + titles.length / (1 + files.size));
    total += rarity;
    for (const file of files) {
      const place = titleWords[file].has(word) ? "title" : inHeadings.has(file) ? "heading" : "text";
      scores.set(file, (scores.get(file) ?? 0) + rarity * WEIGHTS[place]);
    }
  }
  for (const word of excludedTerms)
    for (const file of [...filesWith(terms, word), ...filesWith(titleterms, word)]) scores.delete(file);

  const best = Math.max(...scores.values());
  return [...scores]
    .filter(([, score]) => score > best / 3)
    .map(([file, score]) => [
      docnames[file],
      titles[file],
      "",
      null,
      (MOST / WEIGHTS.title) * (score / total) * (FOLDERS[docnames[file].split("/")[0]] ?? 1),
      filenames[file],
      SearchResultKind.text,
    ]);
};
