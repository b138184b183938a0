// Makes of what somebody types into the filter an expression that the server knows (docs/comparing.md).

// A text with an operator is an expression already. Plain words are looked for in names, users, notes and tags.
export function whereOf(text) {
  const trimmed = text.trim();
  if (trimmed === "") return "";
  if (/[=<>~]|^not\s/.test(trimmed)) return trimmed;
  return trimmed
    .split(/\s+/)
    .map((word) => {
      const quoted = quote(word);
      if (/^#?\d+$/.test(word)) return `(id = ${word.replace("#", "")} or name ~ ${quoted})`;
      return `(name ~ ${quoted} or user = ${quoted} or note ~ ${quoted} or tag = ${quoted} or model = ${quoted})`;
    })
    .join(" and ");
}

const quote = (word) => `'${word.replaceAll("'", "")}'`;
