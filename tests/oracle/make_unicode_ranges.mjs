// Writes src/tokenizer/unicode_ranges.inc: the general category of every code point as the Rust tokenizers' expression
// engine knows it, asked from that engine itself, so that our classes agree with it whatever Unicode version a
// system's libraries have.
//   NODE_MODULES=dir node tests/oracle/make_unicode_ranges.mjs > src/tokenizer/unicode_ranges.inc
import {createRequire} from 'node:module';
import path from 'node:path';
const require = createRequire(path.resolve(process.env.NODE_MODULES ?? 'node_modules', 'x.js'));
const {Tokenizer} = require('@anush008/tokenizers');

// The node binding takes split patterns literally; a tokenizer.json takes them as expressions.
const splitter = (expression) => Tokenizer.fromString(JSON.stringify({
  version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null,
  pre_tokenizer: {type: 'Split', pattern: {Regex: expression}, behavior: 'Removed', invert: false},
  post_processor: null, decoder: null, model: {type: 'WordLevel', vocab: {a: 0}, unk_token: 'a'},
})).getPreTokenizer();

const kCategories = ['Cn', 'Cc', 'Cf', 'Co', 'Ll', 'Lm', 'Lo', 'Lt', 'Lu', 'Mc', 'Me', 'Mn', 'Nd', 'Nl', 'No',
                     'Pc', 'Pd', 'Pe', 'Pf', 'Pi', 'Po', 'Ps', 'Sc', 'Sk', 'Sm', 'So', 'Zl', 'Zp', 'Zs'];
const kPlanes = 17;
const splitters = kCategories.map((name) => splitter(`\\P{${name}}+`));
const category = new Uint8Array(0x110000);

for (let plane = 0; plane < kPlanes; plane++) {
  for (let block = 0; block < 16; block++) {
    let text = '';
    const first = plane * 0x10000 + block * 0x1000;
    const code_points = [];
    for (let cp = first; cp < first + 0x1000; cp++) {
      if (cp >= 0xD800 && cp <= 0xDFFF) continue;
      text += String.fromCodePoint(cp);
      code_points.push(cp);
    }
    if (code_points.length === 0) continue;
    for (let index = 1; index < kCategories.length; index++) {
      for (const [piece] of splitters[index].preTokenizeString(text)) {
        for (const c of piece) {
          const cp = c.codePointAt(0);
          if (category[cp] !== 0) throw new Error(`U+${cp.toString(16)} has two categories`);
          category[cp] = index;
        }
      }
    }
  }
}

let line = '';
let previous = -1;
const flush = () => { if (line) console.log(line); line = ''; };
console.log('// {first code point, category}: each range ends where the next begins. Made by tests/oracle/make_unicode_ranges.mjs.');
for (let cp = 0; cp < 0x110000; cp++) {
  if (category[cp] === previous) continue;
  previous = category[cp];
  const entry = `{0x${cp.toString(16).toUpperCase()}, ${kCategories[previous]}},`;
  if (line.length + entry.length + 1 > 100) flush();
  line += line ? ' ' + entry : entry;
}
flush();
