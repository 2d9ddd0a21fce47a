// Writes tests/golden/tokenizer/: small tokenizers of our own, one for each kind, and what the Rust tokenizers say about
// several hundred texts with each.
//   NODE_MODULES=dir node tests/oracle/make_tokenizer_fixtures.mjs
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {makeTexts} from './tokenizer_texts.mjs';

const require = createRequire(path.resolve(process.env.NODE_MODULES ?? 'node_modules', 'x.js'));
const {Tokenizer} = require('@anush008/tokenizers');
const folder = path.resolve(import.meta.dirname, '../golden/tokenizer');

const kTraining = `The little lighthouse stood where the river met the sea, and every evening its keeper climbed the stairs to light the lamp.
"Who goes there?" she called; nobody answered, but the gulls didn't mind. It's raining again, they're saying, and we'll wait until 10:45.
In 1873 the town counted 2,417 people, 366 boats and 12 bakers. The bakers' bread was the best; I've tasted it, you'd like it too.
for (int i = 0; i < count; ++i) { total += values[i] * 2; }    return total;
def area(width, height):\n    return width * height\n
Das Mädchen läuft über die Brücke; können wir später gehen? L'été dernier, où étais-tu? El niño comió piñas.
Привет, как дела? 你好，世界。今天天气很好。こんにちは世界。안녕하세요 세계. مرحبا بالعالم שלום עולם नमस्ते दुनिया 🙂🚀👩‍🚀
they then there these those this that the them their thesis thing think thinking thinks lighted lighting lights lighter
water waters watering watered unhappy unhappily happiness happily reading reader readers reads read rereading`.repeat(3);

const kByteChars = (() => {
  const map = [];
  let next = 256;
  for (let b = 0; b < 256; b++) map.push(String.fromCodePoint((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : next++));
  return map;
})();
const toBytes = (word) => [...Buffer.from(word)].map((b) => kByteChars[b]);

// Plain byte-pair training: the most frequent pair, again and again.
function train(words, alphabet, merges) {
  const counts = new Map();
  for (const word of words) counts.set(word.join('\u0001'), (counts.get(word.join('\u0001')) ?? 0) + 1);
  let entries = [...counts].map(([key, count]) => [key.split('\u0001'), count]);
  const vocab = [...alphabet], rules = [];
  while (rules.length < merges) {
    const pairs = new Map();
    for (const [symbols, count] of entries) for (let i = 0; i + 1 < symbols.length; i++) {
      const key = symbols[i] + ' ' + symbols[i + 1];
      pairs.set(key, (pairs.get(key) ?? 0) + count);
    }
    let best = null;
    for (const [key, count] of pairs) if (!best || count > best[1] || (count === best[1] && key < best[0])) best = [key, count];
    if (!best || best[1] < 2) break;
    const [left, right] = best[0].split(' ');
    rules.push(best[0]);
    if (!vocab.includes(left + right)) vocab.push(left + right);
    for (const entry of entries) {
      const out = [];
      for (let i = 0; i < entry[0].length; i++) {
        if (i + 1 < entry[0].length && entry[0][i] === left && entry[0][i + 1] === right) { out.push(left + right); i++; } else out.push(entry[0][i]);
      }
      entry[0] = out;
    }
  }
  return {vocab, rules};
}

const indexed = (pieces) => Object.fromEntries(pieces.map((piece, i) => [piece, i]));
const added = (id, content, more = {}) => ({id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...more});
const base = {version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null};
const byteLevel = (useRegex) => ({type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: useRegex});
const template = (prefix, suffix) => ({
  type: 'TemplateProcessing',
  single: [...prefix.map(([id]) => ({SpecialToken: {id, type_id: 0}})), {Sequence: {id: 'A', type_id: 0}}, ...suffix.map(([id]) => ({SpecialToken: {id, type_id: 0}}))],
  pair: [{Sequence: {id: 'A', type_id: 0}}, {Sequence: {id: 'B', type_id: 1}}],
  special_tokens: Object.fromEntries([...prefix, ...suffix].map(([id, number]) => [id, {id, ids: [number], tokens: [id]}])),
});
const gpt2 = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;
const llama3 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const bytePieces = Array.from({length: 256}, (_, b) => `<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`);
const fuse = {type: 'Sequence', decoders: [{type: 'Replace', pattern: {String: '▁'}, content: ' '}, {type: 'ByteFallback'}, {type: 'Fuse'}, {type: 'Strip', content: ' ', start: 1, stop: 0}]};

function byteLevelVocab() {
  return train([...kTraining.matchAll(gpt2)].map(([word]) => toBytes(word)), kByteChars, 700);
}

function makeByteLevel() {
  const {vocab, rules} = byteLevelVocab();
  vocab.push('<|endoftext|>');
  return {...base, added_tokens: [added(vocab.length - 1, '<|endoftext|>')], pre_tokenizer: byteLevel(true), decoder: byteLevel(true),
          post_processor: byteLevel(true), model: {type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: '', end_of_word_suffix: '', fuse_unk: false, byte_fallback: false, vocab: indexed(vocab), merges: rules}};
}

// Llama 3's expression, ignore_merges with pieces that no merge makes, and added tokens of every kind.
function makeChat() {
  const {vocab, rules} = byteLevelVocab();
  vocab.push('Ġlighthousekeeper', 'Ġunreachable', 'strange');
  const n = vocab.length;
  const tokens = [added(n, '<|begin|>'), added(n + 1, '<|im_start|>'), added(n + 2, '<|im_end|>'), added(n + 3, '<mask>', {lstrip: true}), added(n + 4, '<pad>', {rstrip: true}),
                  added(vocab.indexOf('keeper'), 'keeper', {special: false, single_word: true}), added(n + 5, '<tool>', {special: false}), added(n + 6, 'Café', {special: false, normalized: true}), added(n + 7, '<|im'), added(n + 8, '  ', {special: false})];
  return {...base, added_tokens: tokens, normalizer: {type: 'NFC'},
          pre_tokenizer: {type: 'Sequence', pretokenizers: [{type: 'Split', pattern: {Regex: llama3}, behavior: 'Isolated', invert: false}, byteLevel(false)]},
          post_processor: {type: 'Sequence', processors: [byteLevel(false), template([['<|begin|>', n]], [])]}, decoder: byteLevel(true),
          model: {type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ignore_merges: true, vocab: indexed(vocab), merges: rules.map((rule) => rule.split(' '))}};
}

// DeepSeek's way: three expressions one after the other; digits and punctuation by class.
function makeSplits() {
  const file = makeByteLevel();
  file.pre_tokenizer = {type: 'Sequence', pretokenizers: [
    {type: 'Split', pattern: {Regex: '\\p{N}{1,3}'}, behavior: 'Isolated', invert: false}, {type: 'Split', pattern: {Regex: '[一-龥぀-ゟ゠-ヿ]+'}, behavior: 'Isolated', invert: false},
    {type: 'Split', pattern: {String: '--'}, behavior: 'MergedWithPrevious', invert: false}, {type: 'Digits', individual_digits: true}, {type: 'Punctuation', behavior: 'Contiguous'},
    {type: 'Split', pattern: {Regex: '[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'}, behavior: 'Isolated', invert: false}, byteLevel(false)]};
  return file;
}

function characterVocab() {
  const words = kTraining.split(/(?=[ \n])/).map((word) => [...('▁' + word.replace(/ /g, ''))]);
  const letters = [...new Set(words.flat())].filter((c) => !'🙂🚀世界'.includes(c)).sort();
  return train(words.map((word) => word.filter((c) => letters.includes(c))), letters, 500);
}

function makeSentencePiece(metaspace) {
  const {vocab, rules} = characterVocab();
  const pieces = ['<unk>', '<s>', '</s>', ...bytePieces, ...vocab];
  return {...base, added_tokens: [added(0, '<unk>'), added(1, '<s>'), added(2, '</s>')],
          normalizer: metaspace ? null : {type: 'Sequence', normalizers: [{type: 'Prepend', prepend: '▁'}, {type: 'Replace', pattern: {String: ' '}, content: '▁'}]},
          pre_tokenizer: metaspace ? {type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: false} : null,
          post_processor: template([['<s>', 1]], []), decoder: fuse,
          model: {type: 'BPE', dropout: null, unk_token: '<unk>', continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: true, byte_fallback: !metaspace, ignore_merges: false, vocab: indexed(pieces), merges: rules}};
}

function makeUnigram() {
  const counts = new Map();
  for (const word of kTraining.split(/(?=[ \n])/)) {
    const symbols = [...('▁' + word.trim())];
    for (let i = 0; i < symbols.length; i++) for (let j = i + 1; j <= Math.min(symbols.length, i + 8); j++) {
      const piece = symbols.slice(i, j).join('');
      counts.set(piece, (counts.get(piece) ?? 0) + (j - i));
    }
  }
  const total = [...counts.values()].reduce((a, b) => a + b, 0);
  const pieces = [...counts].filter(([piece, count]) => count > 5 && piece !== '世').sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 900);
  return {...base, added_tokens: [added(0, '<pad>'), added(1, '</s>'), added(2, '<unk>')], normalizer: {type: 'Sequence', normalizers: [{type: 'NFKC'}, {type: 'Strip', strip_left: false, strip_right: true}, {type: 'Replace', pattern: {Regex: ' {2,}'}, content: ' '}]},
          pre_tokenizer: {type: 'Sequence', pretokenizers: [{type: 'WhitespaceSplit'}, {type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true}]},
          post_processor: template([], [['</s>', 1]]), decoder: {type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true},
          model: {type: 'Unigram', unk_id: 2, byte_fallback: false, vocab: [['<pad>', 0], ['</s>', 0], ['<unk>', 0], ...pieces.map(([piece, count]) => [piece, Math.log(count / total)])]}};
}

function makeWordPiece() {
  const words = kTraining.toLowerCase().normalize('NFD').replace(/\p{Mn}/gu, '').match(/[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu);
  const letters = [...new Set(words.join(''))].sort();
  const common = [...new Set(words)].filter((word) => word.length > 2 && word.length < 7).sort();
  const suffixes = ['ing', 'er', 'ers', 'ed', 's', 'ly', 'ness', 'house', 'keeper'];
  const pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', ...new Set([...letters, ...letters.map((c) => '##' + c), ...common, ...suffixes.map((s) => '##' + s)])];
  return {...base, added_tokens: [0, 1, 2, 3, 4].map((id) => added(id, pieces[id], id === 4 ? {lstrip: true} : {})), normalizer: {type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase: true},
          pre_tokenizer: {type: 'BertPreTokenizer'}, post_processor: template([['[CLS]', 2]], [['[SEP]', 3]]), decoder: {type: 'WordPiece', prefix: '##', cleanup: true},
          model: {type: 'WordPiece', unk_token: '[UNK]', continuing_subword_prefix: '##', max_input_chars_per_word: 100, vocab: indexed(pieces)}};
}

async function write(name, file) {
  const text = JSON.stringify(file);
  fs.writeFileSync(path.join(folder, `${name}.tokenizer.json`), text + '\n');
  const tokenizer = Tokenizer.fromString(text);
  const special = file.added_tokens.map((token) => token.content);
  // Not the whole comparison: the blocks thinned out, the long runs shortened.
  const sentences = kTraining.slice(0, kTraining.length / 3).split('\n').map((line) => ({name: 'training', text: line}));
  const texts = [...sentences, ...makeTexts(4300, {special}).filter(({name: kind, text: content}, i) => content.length <= 300 && (kind === 'block' ? i % 120 === 0 : kind === 'named' || (kind === 'special' && i % 2 === 0) || i % 8 === 0))];
  const lines = [];
  for (const {text: content} of texts.slice(0, 260)) {
    const ids = (await tokenizer.encode(content, null, {addSpecialTokens: false})).getIds();
    const all = (await tokenizer.encode(content, null, {addSpecialTokens: true})).getIds();
    lines.push(JSON.stringify({text: content, ids, ids_with_special: all, decoded: await tokenizer.decode(ids, false)}));
  }
  fs.writeFileSync(path.join(folder, `${name}.vectors.jsonl`), lines.join('\n') + '\n');
  console.log(name, Object.keys(file.model.vocab).length, 'pieces,', lines.length, 'texts');
}

fs.mkdirSync(folder, {recursive: true});
await write('byte_level', makeByteLevel());
await write('chat', makeChat());
await write('splits', makeSplits());
await write('sentencepiece', makeSentencePiece(false));
await write('metaspace', makeSentencePiece(true));
await write('unigram', makeUnigram());
await write('wordpiece', makeWordPiece());
