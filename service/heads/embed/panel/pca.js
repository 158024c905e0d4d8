// Principal components (Pearson 1901) of a few vectors: the plane in which they differ most.

const MOST_STEPS = 500;
const CLOSE_ENOUGH = 1e-10;

/**
 * Project vectors (n of d numbers) onto their first two principal components.
 *
 * Found in the n x n matrix of products of the centred vectors, which is small where texts are few: its eigenvectors
 * times the roots of their eigenvalues are the coordinates. Returns {points: n of [x, y], shares: of the variance}.
 */
export function project(vectors) {
  const products = centredProducts(vectors);
  const total = products.reduce((sum, row, place) => sum + row[place], 0);
  const axes = [0, 1].map(() => {
    const { value, vector } = largestEigenpair(products);
    deflate(products, value, vector);
    return { value, coordinates: vector.map((part) => part * Math.sqrt(value)) };
  });
  return {
    points: vectors.map((_, place) => axes.map(({ coordinates }) => coordinates[place])),
    shares: axes.map(({ value }) => (total > 0 ? value / total : 0)),
  };
}

function centredProducts(vectors) {
  const mean = vectors[0].map((_, place) => vectors.reduce((sum, vector) => sum + vector[place], 0) / vectors.length);
  const centred = vectors.map((vector) => vector.map((value, place) => value - mean[place]));
  return centred.map((one) => centred.map((other) => one.reduce((sum, value, place) => sum + value * other[place], 0)));
}

/** By power iteration, from the longest column, which is never orthogonal to all that is left. */
function largestEigenpair(matrix) {
  let vector = matrix.reduce((longest, row) => (norm(row) > norm(longest) ? row : longest));
  let value = 0;
  if (norm(vector) < CLOSE_ENOUGH) return { value, vector: vector.map(() => 0) };
  vector = scale(vector, 1 / norm(vector));
  for (let step = 0; step < MOST_STEPS; step += 1) {
    const next = matrix.map((row) => row.reduce((sum, entry, place) => sum + entry * vector[place], 0));
    const length = norm(next);
    if (length < CLOSE_ENOUGH) break;
    vector = scale(next, 1 / length);
    if (Math.abs(length - value) < CLOSE_ENOUGH * length) break;
    value = length;
  }
  return { value, vector };
}

function deflate(matrix, value, vector) {
  for (const [row, entries] of matrix.entries()) {
    for (const column of entries.keys()) entries[column] -= value * vector[row] * vector[column];
  }
}

const norm = (vector) => Math.hypot(...vector);
const scale = (vector, factor) => vector.map((value) => value * factor);
