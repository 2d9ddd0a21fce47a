// Writes src/tokenizer/unicode_old.inc: the marks, punctuation and format characters that the Rust tokenizers' Bert
// parts do not take for such, because their tables are of an older Unicode. Asked from the library itself.
//   NODE_MODULES=dir node tests/oracle/make_unicode_old.mjs > src/tokenizer/unicode_old.inc
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
const require = createRequire(path.resolve(process.env.NODE_MODULES ?? 'node_modules', 'x.js'));
const {bertNormalizer, punctuationPreTokenizer} = require('@anush008/tokenizers');

const source = fs.readFileSync(path.resolve(import.meta.dirname, '../../src/tokenizer/unicode_ranges.inc'), 'utf8');
const ranges = [...source.matchAll(/\{0x([0-9A-F]+), (\w\w)\}/g)].map(([, first, name]) => [parseInt(first, 16), name]);
const off = {cleanText: false, handleChineseChars: false, stripAccents: false, lowercase: false};
const accents = bertNormalizer({...off, stripAccents: true}), clean = bertNormalizer({...off, cleanText: true});
const punctuation = punctuationPreTokenizer('isolated');
const late = [];
ranges.forEach(([first, name], i) => {
  const end = i + 1 < ranges.length ? ranges[i + 1][0] : 0x110000;
  for (let cp = first; cp < end && 'Mn Cf Pc Pd Pe Pf Pi Po Ps'.includes(name); cp++) {
    const text = 'x' + String.fromCodePoint(cp) + 'y';
    const known = name === 'Mn' ? accents.normalizeString(text) === 'xy' : name === 'Cf' ? clean.normalizeString(text) === 'xy' : punctuation.preTokenizeString(text).length === 3;
    if (!known && late.at(-1)?.[1] === cp - 1) late.at(-1)[1] = cp;
    else if (!known) late.push([cp, cp]);
  }
});
late.sort((a, b) => a[0] - b[0]);
console.log('// {first, last} of characters that the Bert parts of the Rust tokenizers do not know. Made by make_unicode_old.mjs.');
let line = '';
for (const [first, last] of late) {
  const entry = `{0x${first.toString(16).toUpperCase()}, 0x${last.toString(16).toUpperCase()}},`;
  if (line.length + entry.length > 99) { console.log(line); line = ''; }
  line += line ? ' ' + entry : entry;
}
console.log(line);
