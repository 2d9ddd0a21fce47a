#!/usr/bin/env python3
"""Turns the text corpus into what train.py reads: a tokenizer and three streams of token ids.

    prepare.py --corpus corpus.tar.xz --out DIR [--vocab-size 4096]

Writes DIR/tokenizer.json (byte-level BPE, id 0 is <|endoftext|>) and DIR/tokens.npz: for each source
(stories, children, novels) the ids of the training and of the held-out documents. Every document begins
with <|endoftext|>, which thus means "something new starts here" and ends the one before.

Needs only `tokenizers` and `numpy`; a minute on two cores.
"""
import argparse
import collections
import hashlib
import pathlib
import re
import tarfile

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"
HELD_OUT_PERCENT = {"stories": 4, "children": 1, "novels": 1}
# The same book is in the corpus twice, from two editions.
TWINS = {"gitenberg_Alice-s-Adventures-in-Wonderland_11.txt"}
# Dialect spelling that a small model would pick up as misspelling.
LEFT_OUT = {"gitenberg_Nights-With-Uncle-Remus_24430.txt"}

STORY_START = re.compile(
    r"(Once upon a time|Once there was|Once, there|There once was|Long ago|A long time ago"
    r"|One day,? (a|an|there|two|three|in)\b|One (sunny|hot|cold|rainy|bright|nice) (day|morning)"
    r"|In a (small|big|little|far|quiet|land|deep|green|tall)|There was (a|an|once)\b)")
WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)?")
SPEECH = {"said", "asked", "replied", "cried", "shouted", "yelled", "called", "answered", "whispered", "says",
          "thought", "exclaimed", "screamed", "laughed", "explained", "added", "smiled"}


def paragraphs(text):
    """Blank lines separate paragraphs; a line break inside one is a space."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        block = re.sub(r"\s+", " ", block).strip()
        if block:
            found.append(block)
    return found


def is_heading(paragraph):
    """Titles, chapter numbers, lists of contents: short, and capitals at every turn or no sentence."""
    if len(paragraph) > 90 or paragraph[-1] in ",;:\"'":
        return False
    words = re.findall(r"[A-Za-z]+", paragraph)
    if not words:
        return True
    if paragraph.upper() == paragraph:
        return True
    if re.match(r"(chapter|book|part|story|the end\b|[ivxlc]+\.?( |$))", paragraph, re.I):
        return len(words) < 14 and (paragraph[-1] not in "!?" and not paragraph.endswith(".") or len(words) < 5)
    if paragraph[-1] in ".!?-":
        return False
    small = {"a", "an", "and", "the", "of", "in", "on", "to", "with", "at", "for", "or", "by", "from", "his", "her", "who"}
    return all(w[0].isupper() or w in small for w in words)


def book_documents(text):
    """A book's chapters or tales, without their headings; what is no prose is left out."""
    documents, current = [], []
    for paragraph in paragraphs(text):
        paragraph = paragraph.replace("_", "")
        paragraph = re.sub(r"\[[^\]]{0,400}\]", "", paragraph)  # notes, "[Illustration]"
        paragraph = re.sub(r"\s+", " ", paragraph).strip()
        if not paragraph or re.search(r"[*=|{}<>#]|https?:|www\.|Gutenberg", paragraph):
            continue
        if is_heading(paragraph):
            if sum(map(len, current)) > 600:
                documents.append("\n\n".join(current))
                current = []
            elif sum(map(len, current)) < 200:
                current = []
            continue
        current.append(paragraph)
    if sum(map(len, current)) > 600:
        documents.append("\n\n".join(current))
    return documents


# UTF-8 that was read as Windows-1252, the closing quote with its last byte lost.
MOJIBAKE = (("\u00e2\u20ac\u0153", '"'), ("\u00e2\u20ac\u2122", "'"), ("\u00e2\u20ac\u02dc", "'"),
            ("\u00e2\u20ac\u00a6", "..."), ("\u00e2\u20ac\u201c", "-"), ("\u00e2\u20ac\u201d", " - "),
            ("\u00e2\u20ac", '"'))


def repaired(text):
    for wrong, right in MOJIBAKE:
        text = text.replace(wrong, right)
    return text


class Truecaser:
    """Puts capitals back into lower-case stories, from what stories in proper case do."""

    def __init__(self, cased):
        self.unigram = collections.defaultdict(lambda: [0, 0])
        self.bigram = collections.defaultdict(lambda: [0, 0])
        for story in cased:
            previous, end = "", 0
            for match in WORD.finditer(story):
                word = match.group()
                gap = story[end:match.start()]
                if not self.starts_sentence(gap, match.start() == 0):
                    key = word.lower()
                    upper = int(word[0].isupper())
                    self.unigram[key][upper] += 1
                    self.bigram[previous, key][upper] += 1
                previous, end = word.lower(), match.end()

    @staticmethod
    def starts_sentence(gap, first):
        return first or "\n" in gap or re.search(r"[.!?]", gap) or re.search(r'[,:]\s+"$', gap) or gap.endswith(' "')

    def proper(self, previous, word):
        lower, upper = self.bigram.get((previous, word), (0, 0))
        if lower + upper < 3:
            lower, upper = self.unigram.get(word, (0, 0))
        return upper > lower

    def restore(self, story):
        # A name is what follows "named" and was never seen as a plain word.
        names = {n for n in re.findall(r"\b(?:named|called) ([a-z]+)", story)
                 if n not in self.unigram or self.proper("", n)}
        out, last, previous = [], 0, ""
        words = list(WORD.finditer(story))
        for index, match in enumerate(words):
            word, gap = match.group(), story[last:match.start()]
            start = self.starts_sentence(gap, index == 0)
            if start and re.match(r'[!?]" $', gap):  # "Look!" she said
                following = [m.group() for m in words[index:index + 3]]
                start = not SPEECH & set(following)
            if start or self.proper(previous, word) or word in names or word == "i" or word.startswith("i'"):
                word = word[0].upper() + word[1:]
            out += [gap, word]
            last, previous = match.end(), match.group()
        return "".join(out) + story[last:]


def stories(read):
    """The short stories, all in proper case, each once."""
    cased = [s.strip() for s in repaired(read("tinystories/tinystories_train_head_cased.txt")).split(END)]
    valid, current = [], []
    for paragraph in paragraphs(repaired(read("tinystories/tinystories_valid_part_cased.txt")))[2:]:
        if STORY_START.match(paragraph) and current:
            valid.append("\n\n".join(current))
            current = []
        current.append(paragraph)
    cased = cased[:-1] + valid  # the last ones of both files are cut off
    cased = [re.sub(r"\s*\n\s*", "\n\n", s) for s in cased if s]

    caser = Truecaser(cased)
    seen = {fingerprint(s) for s in cased}
    lower = re.split(r"(?<!\n)\n(?!\n)", repaired(read("tinystories/tinystories_train_head_lowercase.txt")))[:-1]
    restored = [caser.restore(re.sub(r"\s*\n\s*", "\n\n", s.strip())) for s in lower if fingerprint(s) not in seen]
    # How often the restored case is right, over stories that we have in both.
    right = total = 0
    for story in cased[:300]:
        for a, b in zip(story.split(), caser.restore(story.lower()).split()):
            right, total = right + (a == b), total + 1
    print(f"stories: {len(cased)} cased, {len(restored)} restored, case right in {100 * right / total:.2f} % of words")
    unique = {fingerprint(s): s for s in cased + restored if len(s) > 150 and s.isascii() and s[-1] in '.!?"'}
    return list(unique.values())


def fingerprint(text):
    return hashlib.sha1(re.sub(r"[^a-z]", "", text.lower())[:300].encode()).digest()


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--corpus", required=True)
    args.add_argument("--out", required=True, type=pathlib.Path)
    args.add_argument("--vocab-size", type=int, default=4096)
    args = args.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    with tarfile.open(args.corpus) as tar:
        files = {m.name.removeprefix("corpus/"): tar.extractfile(m).read().decode()
                 for m in tar.getmembers() if m.isfile()}
    sources = {"stories": stories(files.__getitem__), "children": [], "novels": []}
    seen = set()
    for name, text in sorted(files.items()):
        folder, _, file = name.partition("/")
        if folder in ("children", "novels") and file not in TWINS | LEFT_OUT:
            for document in book_documents(text):
                key = fingerprint(document)
                if key not in seen:
                    seen.add(key)
                    sources[folder].append(document)

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        sources["stories"] * 4 + sources["children"],
        trainers.BpeTrainer(vocab_size=args.vocab_size, special_tokens=[END], show_progress=False,
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(args.out / "tokenizer.json"))

    arrays = {}
    rng = np.random.default_rng(1)
    for source, documents in sources.items():
        documents = [documents[i] for i in rng.permutation(len(documents))]
        held = {"train": [], "valid": []}
        for document, encoding in zip(documents, tokenizer.encode_batch(documents)):
            bucket = int.from_bytes(fingerprint(document)[:4], "big") % 100
            part = "valid" if bucket < HELD_OUT_PERCENT[source] else "train"
            held[part].append(np.array([0] + encoding.ids, dtype=np.uint16))
        for part, lists in held.items():
            arrays[f"{source}_{part}"] = np.concatenate(lists)
            print(f"{source:9} {part}: {len(lists):6} documents, {len(arrays[f'{source}_{part}']):9} ids")
    np.savez_compressed(args.out / "tokens.npz", **arrays)


if __name__ == "__main__":
    main()
