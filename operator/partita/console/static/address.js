// What the address keeps of the view: the filter, and of each partition the list and its order.

export const kept = (name) => new URLSearchParams(location.search).get(name) ?? "";

export function keep(name, value) {
  const query = new URLSearchParams(location.search);
  if (value) query.set(name, value);
  else query.delete(name);
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text && `?${text}`) + location.hash);
}
