// Places in texts. The server counts characters (code points), a browser counts UTF-16 units: both meet here alone.

const segmenter = new Intl.Segmenter(undefined, { granularity: "word" });

/** For each character of `text`, and for its end, its place in UTF-16 units. */
export function unitOffsets(text) {
  const offsets = [0];
  for (const character of text) offsets.push(offsets.at(-1) + character.length);
  return offsets;
}

/** The pieces of `text` in order: {start, end, isWord}, in UTF-16 units. */
export function pieces(text) {
  return [...segmenter.segment(text)].map(({ index, segment, isWordLike }) => ({
    start: index,
    end: index + segment.length,
    isWord: Boolean(isWordLike),
  }));
}

/** Those pieces that are words. */
export const words = (text) => pieces(text).filter((piece) => piece.isWord);

/** The lines of `text`: {text, start}, in UTF-16 units. */
export function lines(text) {
  let start = 0;
  return text.split("\n").map((line) => {
    const found = { text: line, start };
    start += line.length + 1;
    return found;
  });
}

export const overlap = (one, other) => one.start < other.end && other.start < one.end;

/** The server's tokens with their places in UTF-16 units; special tokens, which have none, are left out. */
export function placedTokens(tokens, text) {
  const offsets = unitOffsets(text);
  return tokens.flatMap((token, index) =>
    token.start === null ? [] : [{ index, start: offsets[token.start], end: offsets[token.end] }],
  );
}
