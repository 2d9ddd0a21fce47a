// Speeds side by side, in one run on one machine: ours, the Rust tokenizers, Hugging Face's own in JavaScript, tiktoken
// in JavaScript. Each encodes the same text in one call; MB/s of CPU time, the best of three.
//   NODE_MODULES=DIR/node_modules node tests/oracle/bench_tokenizers.mjs --program build/dev/bench/tokenizer_bench \
//     --text FILE MODEL...
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {parseArgs} from 'node:util';

const {values: options, positionals: models} = parseArgs({allowPositionals: true, options: {
  program: {type: 'string', default: 'build/dev/bench/tokenizer_bench'}, text: {type: 'string'},
}});
const modules = path.resolve(process.env.NODE_MODULES ?? 'node_modules');
const require = createRequire(path.join(modules, 'x.js'));
const rust = require('@anush008/tokenizers');
const text = fs.readFileSync(options.text, 'utf8');

async function speed(bytes, work) {
  let best = Infinity;
  for (let i = 0; i < 3; i++) {
    const before = process.cpuUsage();
    await work();
    const {user, system} = process.cpuUsage(before);
    best = Math.min(best, (user + system) / 1e6);
  }
  return bytes / best / 1e6;
}

// The slow ones get the beginning of the text.
const part = (length) => { const cut = text.slice(0, length); return [cut, Buffer.byteLength(cut)]; };
for (const model of models) {
  const row = {model, ours: JSON.parse(execFileSync(options.program, [options.text, model]).toString())};
  const file = model.endsWith('.json') ? model : path.join(model, 'tokenizer.json');
  if (fs.existsSync(file)) {
    const before = process.cpuUsage();
    const tokenizer = rust.Tokenizer.fromFile(file);
    const {user, system} = process.cpuUsage(before);
    row.rust_load_ms = (user + system) / 1e3;
    const [cut, bytes] = part(2e6);
    row.rust_mb_per_s = await speed(bytes, () => tokenizer.encode(cut, null, {addSpecialTokens: false}));
    const js = await import(path.join(modules, '@huggingface/tokenizers/dist/tokenizers.mjs')).catch(() => null);
    if (js) {
      const slow = new js.Tokenizer(JSON.parse(fs.readFileSync(file)), {});
      const [short, size] = part(1e5);
      row.huggingface_js_mb_per_s = await speed(size, () => slow.encode(short, {add_special_tokens: false}));
    }
  }
  const encoding = {gpt2: 'gpt2', gpt4: 'cl100k_base', gpt4o: 'o200k_base'}[path.basename(path.dirname(file))];
  if (encoding) {
    try {
      const tiktoken = require('js-tiktoken').getEncoding(encoding);
      const [short, size] = part(3e5);
      row.tiktoken_js_mb_per_s = await speed(size, () => tiktoken.encode(short));
    } catch { /* not installed */ }
  }
  console.log(JSON.stringify(row));
}
