// Compares llorch-tokenize --batch with the Rust tokenizers (and, on a sample, with Hugging Face's own in JavaScript)
// over every tokenizer of a data folder. Exit code 1 when anything differs from the Rust library.
//   npm install --prefix DIR @anush008/tokenizers @huggingface/tokenizers
//   NODE_MODULES=DIR/node_modules node tests/oracle/compare_tokenizers.mjs --program build/dev/bin/llorch-tokenize \
//     --data ../shared/data [--corpus DIR_OF_TXT] [--count 10000] [--only NAME] [--sample 1000]
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import {createRequire} from 'node:module';
import os from 'node:os';
import path from 'node:path';
import {parseArgs} from 'node:util';
import {makeTexts, readPassages} from './tokenizer_texts.mjs';

const {values: options} = parseArgs({options: {
  program: {type: 'string', default: 'build/dev/bin/llorch-tokenize'}, data: {type: 'string', default: '../shared/data'},
  corpus: {type: 'string'}, count: {type: 'string', default: '10000'}, only: {type: 'string', default: ''}, sample: {type: 'string', default: '0'},
}});
const require = createRequire(path.resolve(process.env.NODE_MODULES ?? 'node_modules', 'x.js'));
const rust = require('@anush008/tokenizers');

// [what we load, the tokenizer.json that says what is right, whether special tokens are the same in both]
function findPairs(data) {
  const pairs = [];
  const add = (ours, oracle, special) => {
    if (!fs.existsSync(path.join(data, ours)) || !fs.existsSync(path.join(data, oracle))) return;
    // What goes around a text is compared where tokenizer.json alone says it; the Rust library reads nothing else.
    const config = path.join(data, path.dirname(ours), 'tokenizer_config.json');
    const affixes = ours === oracle && !(fs.existsSync(config) && /"add_(bos|eos)_token": *true/.test(fs.readFileSync(config, 'utf8')));
    pairs.push({ours, oracle, special, affixes});
  };
  for (const name of fs.readdirSync(path.join(data, 'tokenizers')).sort()) {
    const file = `tokenizers/${name}/tokenizer.json`;
    add(file, file, true);
  }
  for (const name of ['minimind2-small', 'stories260K']) add(`weights/${name}/hf/tokenizer.json`, `weights/${name}/hf/tokenizer.json`, true);
  add('tokenizers/tinyllama_llama2/tokenizer.model', 'tokenizers/tinyllama_llama2/tokenizer.json', true);
  add('vocab/ggml-vocab-gpt-2.gguf', 'tokenizers/gpt2/tokenizer.json', true);
  add('vocab/ggml-vocab-qwen2.gguf', 'tokenizers/qwen2_5/tokenizer.json', false);
  add('vocab/ggml-vocab-llama-spm.gguf', 'tokenizers/tinyllama_llama2/tokenizer.json', true);
  add('weights/minimind2-small/minimind2-small-Q4_K_M.gguf', 'weights/minimind2-small/hf/tokenizer.json', true);
  add('weights/stories260K/gguf/stories260K-F32.gguf', 'weights/stories260K/hf/tokenizer.json', true);
  const own = path.resolve(import.meta.dirname, '../golden/tokenizer');
  if (fs.existsSync(own)) {
    for (const name of fs.readdirSync(own).filter((n) => n.endsWith('.tokenizer.json')).sort()) {
      const file = path.relative(data, path.join(own, name));
      add(file, file, true);
    }
  }
  return pairs.filter((pair) => pair.ours.includes(options.only));
}

function runOurs(model, texts) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'compare-'));
  const input = path.join(folder, 'in.jsonl');
  fs.writeFileSync(input, texts.map(({text}) => JSON.stringify({text})).join('\n') + '\n');
  const began = process.hrtime.bigint();
  const output = execFileSync(options.program, ['--model', model, '--batch'], {stdio: [fs.openSync(input), 'pipe', 'inherit'], maxBuffer: 1 << 30});
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  fs.rmSync(folder, {recursive: true});
  return {lines: output.toString().split('\n').filter(Boolean).map((line) => JSON.parse(line)), seconds};
}

async function runRust(file, texts) {
  const tokenizer = rust.Tokenizer.fromFile(file);
  tokenizer.disableTruncation();
  tokenizer.disablePadding();
  const lines = [];
  for (const {text} of texts) {
    const ids = (await tokenizer.encode(text, null, {addSpecialTokens: false})).getIds();
    const withSpecial = (await tokenizer.encode(text, null, {addSpecialTokens: true})).getIds();
    lines.push({ids, ids_with_special: withSpecial, decoded: await tokenizer.decode(ids, false)});
  }
  return lines;
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const short = (value) => { const text = JSON.stringify(value); return text.length > 160 ? text.slice(0, 160) + '…' : text; };

async function sampleJavaScript(pair, texts, expected) {
  const {Tokenizer} = await import(path.resolve(process.env.NODE_MODULES ?? 'node_modules', '@huggingface/tokenizers/dist/tokenizers.mjs')).catch(() => ({}));
  if (!Tokenizer) return 'not installed';
  const file = path.join(options.data, pair.oracle);
  const config = path.join(path.dirname(file), 'tokenizer_config.json');
  const tokenizer = new Tokenizer(JSON.parse(fs.readFileSync(file)), fs.existsSync(config) ? JSON.parse(fs.readFileSync(config)) : {});
  let different = 0, done = 0;
  for (let i = 0; i < texts.length && done < Number(options.sample); i += Math.max(1, Math.floor(texts.length / Number(options.sample)))) {
    if (texts[i].text.length > 2000) continue;
    done++;
    let ids;
    try { ids = tokenizer.encode(texts[i].text, {add_special_tokens: false}).ids; } catch { ids = null; }
    if (!same(ids, expected[i].ids)) different++;
  }
  return `${different} of ${done} differ from the Rust library`;
}

let failures = 0;
const passages = readPassages(options.corpus);
for (const pair of findPairs(options.data)) {
  const file = path.join(options.data, pair.oracle);
  const special = pair.special ? (JSON.parse(fs.readFileSync(file)).added_tokens ?? []).map((token) => token.content).slice(0, 60) : [];
  const texts = makeTexts(Number(options.count), {passages, special});
  const ours = runOurs(path.join(options.data, pair.ours), texts);
  const expected = await runRust(file, texts);
  const counts = {};
  let shown = 0;
  texts.forEach(({name, text}, i) => {
    for (const key of ['ids', 'ids_with_special', 'decoded']) {
      if (key === 'ids_with_special' && !pair.affixes) continue;
      if (same(ours.lines[i]?.[key], expected[i][key])) continue;
      counts[`${name}.${key}`] = (counts[`${name}.${key}`] ?? 0) + 1;
      if (shown++ < 5) console.log(`  ${name} ${key} of ${short(text)}\n    ours   ${short(ours.lines[i]?.[key] ?? ours.lines[i])}\n    oracle ${short(expected[i][key])}`);
      break;
    }
  });
  const different = Object.values(counts).reduce((a, b) => a + b, 0);
  failures += different;
  const bytes = texts.reduce((sum, {text}) => sum + Buffer.byteLength(text), 0);
  console.log(`${pair.ours}: ${texts.length} texts, ${bytes} bytes, ${different} differ ${different ? JSON.stringify(counts) : ''}(ours ${ours.seconds.toFixed(1)} s)`);
  if (Number(options.sample) > 0) console.log(`  @huggingface/tokenizers: ${await sampleJavaScript(pair, texts, expected)}`);
}
process.exit(failures ? 1 : 0);
