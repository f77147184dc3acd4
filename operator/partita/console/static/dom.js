// Builds and changes elements. Text goes in as text alone: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element; `class` and other attributes come by name, children as elements or text. */
export function el(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/** Make an element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// What was set last is kept beside the element: to ask the document is slower by far.
const LAST = Symbol("last");

function differs(node, name, value) {
  const last = (node[LAST] ??= {});
  if (last[name] === value) return false;
  last[name] = value;
  return true;
}

/** Set an element's text, where it is another. */
export function say(node, text) {
  if (differs(node, "text", String(text))) node.textContent = text;
}

/** Set an attribute, where it is another; null takes it away. */
export function put(node, name, value) {
  if (!differs(node, `@${name}`, value)) return;
  if (value === null) node.removeAttribute(name);
  else node.setAttribute(name, value);
}

/** Set a property of an element's style, where it is another. */
export function style(node, name, value) {
  if (differs(node, `:${name}`, value)) node.style.setProperty(name, value);
}

/** Give an element these children; those that it has keep their place, and with it focus and scroll position. */
export function arrange(parent, children) {
  for (const child of [...parent.childNodes]) if (!children.includes(child)) child.remove();
  let before = parent.firstChild;
  for (const child of children) {
    if (child === before) before = before.nextSibling;
    else parent.insertBefore(child, before);
  }
}

/**
 * Children by key: those that stay keep their element, and with it focus and selection.
 * `make` returns an object with the element in `.node`; `update` gets that object and the item.
 */
export class Keyed {
  constructor(parent, make, update) {
    Object.assign(this, { parent, make, update, parts: new Map() });
  }

  show(items, keyOf, changed = null) {
    const keys = new Set(items.map(keyOf));
    for (const [key, part] of this.parts) {
      if (!keys.has(key)) {
        part.node.remove();
        this.parts.delete(key);
      }
    }
    let before = this.parent.firstChild;
    for (const item of items) {
      const key = keyOf(item);
      let part = this.parts.get(key);
      const isNew = part === undefined;
      if (isNew) {
        part = this.make(item);
        this.parts.set(key, part);
      }
      if (part.node === before) before = before.nextSibling;
      else this.parent.insertBefore(part.node, before);
      if (isNew || changed === null || changed.has(key)) this.update(part, item);
    }
  }
}
