// Texts that tokenizers get wrong, the same on every run: {name, text}.
import fs from 'node:fs';
import path from 'node:path';

export function makeRandom(seed) {
  let state = seed >>> 0;
  return (bound) => {  // 0 … bound - 1 (xorshift32)
    state ^= state << 13; state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5; state >>>= 0;
    return state % bound;
  };
}

const codePoint = (random, ranges) => {
  const [first, last] = ranges[random(ranges.length)];
  return String.fromCodePoint(first + random(last - first + 1));
};
const repeat = (count, make) => Array.from({length: count}, make).join('');

const kAnything = [[0, 0xD7FF], [0xE000, 0xFFFF], [0x10000, 0x10FFFF]];
const kAssigned = [[0x20, 0x2FFF], [0x3000, 0xD7A3], [0xF900, 0xFFFD], [0x10000, 0x1FBFF], [0x20000, 0x2A6DF]];
const kLatin = [[0x20, 0x7E], [0x20, 0x7E], [0x20, 0x7E], [0xA0, 0x24F]];
const kCjk = [[0x4E00, 0x9FFF], [0x3040, 0x30FF], [0xAC00, 0xD7A3], [0x3000, 0x303F], [0xFF00, 0xFFEF]];
const kRtl = [[0x590, 0x6FF], [0x700, 0x8FF], [0xFB1D, 0xFDFF], [0x20, 0x20], [0x200E, 0x200F]];
const kIndic = [[0x900, 0xDFF], [0xE00, 0xFFF], [0x1000, 0x109F], [0x1780, 0x17FF], [0x20, 0x20]];
const kMarks = [[0x61, 0x7A], [0x300, 0x36F], [0x1AB0, 0x1ACE], [0x1100, 0x11FF], [0xAC00, 0xAC20], [0x915, 0x94D]];
const kSpaces = [[0x20, 0x20], [0x20, 0x20], [0x9, 0xD], [0x85, 0x85], [0xA0, 0xA0], [0x1680, 0x1680], [0x180E, 0x180E],
                 [0x2000, 0x200B], [0x2028, 0x2029], [0x202F, 0x202F], [0x205F, 0x205F], [0x3000, 0x3000], [0xFEFF, 0xFEFF]];
const kEmoji = [[0x1F300, 0x1FAFF], [0x1F1E6, 0x1F1FF], [0x1F3FB, 0x1F3FF], [0x200D, 0x200D], [0xFE0E, 0xFE0F], [0x2600, 0x27BF], [0xE0020, 0xE007F]];
const kPunctuation = [[0x21, 0x2F], [0x3A, 0x40], [0x5B, 0x60], [0x7B, 0x7E], [0x2010, 0x205E], [0x3001, 0x3003], [0x20, 0x20], [0xA, 0xA]];
const kContractions = ["'s", "'S", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'Ll", "'d", "'D", "'ſ", "’s", "''", "'", " 's", "'x", "I'm", "can't", "'llama", "'REALLY"];
const kCode = ['for (int i = 0; i < n; ++i) {\n', '\treturn x;\n', '}\n\n', 'def f(self, *args, **kwargs):\n    ', "print(f'{a!r}')\n",
               '<div class="a">', '</div>\n', '// TODO', '#include <vector>\n', 'x = {"a": [1, 2.5e-3, null]}', '\r\n', '        ', '->', '::', '&&', '||=', '`${x}`'];

const kNamed = [
  '', ' ', '  ', '\n', '\n\n', ' \n', '\n ', '\t', '\r\n', 'a', ' a', 'a ', '  a', '   a  b   ', 'Hello world', ' Hello', 'Hello  World', 'HELLO',
  '3', '33', '333', '3333', '33333', '333333', '3333333', '１２３', '٣٣٣٣', '½¾', 'Ⅷ', '1,234,567.89', '0x1F', 'ied 4 ½ months', 'Äpfel', 'Führer', 'नमस्ते', 'កាន់តែពិសេសអាច',
  'Cửa Việt', '🚀', '🚀 (normal) 😶‍🌫️ (multiple emojis concatenated) ✅ 🦙🦙', '👨‍👩‍👧‍👦', '🇩🇪🇫🇷', 'e\u0301', '\u0301', 'é', 'ﬁ', 'Å', '\u212B', 'ſ', 'İ', 'ß', 'ẞ', 'Ω', '\u0958', '\u0344', '가', '\u1100\u1161\u11A8',
  '<|endoftext|', '<|im_start', '<s', '</s', '<unk', '▁', '▁▁', ' ▁ ', 'a▁b', '<0x0A>', '<0xZZ>', '[INST]', '\u0000', 'a\u0000b', '\uFFFD', '\uFEFF', '\u200B', '\u00AD', "I've don't they'll WE'RE it's 'tis",
  'http://example.com/a?b=c&d=e#f', 'user@example.com', 'C++ C# F#', '...', '!!!!!!', '------', '=====', '$$$', '"""', "'''", '\\n', '\\\\', '我想在apple工作1314151天～', 'שלום עולם', 'مرحبا بالعالم', '日本語テキスト。', '한국어 텍스트',
];

export function makeTexts(count, {passages = [], special = []} = {}) {
  const random = makeRandom(20240726);
  const texts = kNamed.map((text) => ({name: 'named', text}));
  // Every block of the code space, 128 characters at a time, joined and with spaces.
  for (let first = 0; first < 0x30000; first += 128) {
    let joined = '', spaced = '';
    for (let cp = first; cp < first + 128; cp++) {
      if (cp >= 0xD800 && cp <= 0xDFFF) continue;
      joined += String.fromCodePoint(cp);
      if (cp % 3 === 0) spaced += ' a' + String.fromCodePoint(cp) + '1';
    }
    if (joined) texts.push({name: 'block', text: joined}, {name: 'block', text: spaced});
  }
  for (const token of special.slice(0, 40)) {
    for (const text of [token, ` ${token} `, `a${token}b`, `${token}${token}`, `Hi ${token}\nyou`, token.slice(0, -1)]) texts.push({name: 'special', text});
  }
  const kinds = [
    ['anything', () => repeat(1 + random(40), () => codePoint(random, kAnything))],
    ['assigned', () => repeat(1 + random(60), () => codePoint(random, kAssigned))],
    ['latin', () => repeat(1 + random(80), () => codePoint(random, kLatin))],
    ['bytes', () => repeat(1 + random(60), () => String.fromCharCode(random(256)))],
    ['cjk', () => repeat(1 + random(60), () => codePoint(random, kCjk))],
    ['rtl', () => repeat(1 + random(60), () => codePoint(random, kRtl))],
    ['indic', () => repeat(1 + random(60), () => codePoint(random, kIndic))],
    ['marks', () => repeat(1 + random(40), () => codePoint(random, kMarks))],
    ['spaces', () => repeat(1 + random(30), () => random(3) ? codePoint(random, kSpaces) : codePoint(random, kLatin))],
    ['emoji', () => repeat(1 + random(30), () => codePoint(random, kEmoji))],
    ['punctuation', () => repeat(1 + random(40), () => random(4) ? codePoint(random, kPunctuation) : codePoint(random, kLatin))],
    ['digits', () => repeat(1 + random(20), () => String(random(10 ** (1 + random(9)))) + [' ', '', ',', '.', '\n', 'a'][random(6)])],
    ['contractions', () => repeat(1 + random(12), () => kContractions[random(kContractions.length)] + ['', ' ', 'a', '\n'][random(4)])],
    ['code', () => repeat(1 + random(20), () => kCode[random(kCode.length)])],
    ['runs', () => repeat(1 + random(4), () => codePoint(random, kAssigned).repeat(1 + random(60)))],
    ['mixed', () => repeat(1 + random(20), () => kNamed[random(kNamed.length)] + ['', ' '][random(2)])],
  ];
  if (passages.length) kinds.push(['passage', () => { const p = passages[random(passages.length)]; const at = random(Math.max(1, p.length - 400)); return p.slice(at, at + 20 + random(380)).replace(/[\uD800-\uDFFF]/g, ''); }]);
  if (special.length) kinds.push(['special', () => repeat(1 + random(8), () => random(2) ? special[random(special.length)] : kNamed[random(kNamed.length)])]);
  for (let i = 0; texts.length < count; i++) {
    const [name, make] = kinds[i % kinds.length];
    texts.push({name, text: make()});
  }
  for (const c of ['a', ' ', '🦙', '\n', '一', '1', '-']) texts.push({name: 'long', text: c.repeat(20000)});
  return texts;
}

export function readPassages(folder) {
  if (!folder || !fs.existsSync(folder)) return [];
  return fs.readdirSync(folder, {recursive: true}).filter((name) => name.endsWith('.txt')).sort().slice(0, 60)
    .map((name) => fs.readFileSync(path.join(folder, name), 'utf8').slice(0, 200000));
}
