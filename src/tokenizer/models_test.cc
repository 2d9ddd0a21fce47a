// The models against slow and obvious versions of themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

namespace llorch::tokenizer {
namespace {

std::string random_word(std::mt19937& random, std::size_t max_length,
                        std::string_view letters = "abc") {
  std::string word;
  for (std::size_t n = 1 + random() % max_length; n > 0; --n)
    word += letters[random() % letters.size()];
  return word;
}

// Merges the pair of the lowest rank, the leftmost first, until there is none.
std::vector<TokenId> slow_merge(std::vector<TokenId> ids, const std::vector<Merge>& merges) {
  for (;;) {
    const Merge* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      for (const Merge& merge : merges) {
        if (merge.left == ids[i] && merge.right == ids[i + 1] &&
            (best == nullptr || merge.rank < best->rank)) {
          best = &merge;
          at = i;
        }
      }
    }
    if (best == nullptr) return ids;
    ids[at] = best->result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Vocabularies and merges at random, unlike trained ones: pieces that their own merges do not make,
// ranks that fall, several merges for one piece.
TEST(Bpe, MergesLikeTheSlowVersionForAnyMerges) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> texts = {"a", "b", "c"};
    std::vector<Merge> merges;
    std::set<std::pair<TokenId, TokenId>> pairs;
    while (merges.size() < 25) {
      const auto left = static_cast<TokenId>(random() % texts.size()),
                 right = static_cast<TokenId>(random() % texts.size());
      const std::string joined =
          texts[static_cast<std::size_t>(left)] + texts[static_cast<std::size_t>(right)];
      if (joined.size() > 8 || !pairs.emplace(left, right).second) continue;
      const auto known = std::find(texts.begin(), texts.end(), joined);
      const auto result = static_cast<TokenId>(known - texts.begin());
      if (known == texts.end()) texts.push_back(joined);
      merges.push_back({left, right, result, static_cast<std::uint32_t>(merges.size())});
    }
    if (round % 2 == 0) {
      std::shuffle(merges.begin(), merges.end(), random);
      for (std::size_t i = 0; i < merges.size(); ++i)
        merges[i].rank = static_cast<std::uint32_t>(i);
    }
    const std::vector<std::string_view> pieces(texts.begin(), texts.end());
    Vocab vocab(pieces, {});
    BpeOptions options;
    options.byte_level = true;
    const Bpe bpe(vocab, merges, options);
    Scratch scratch;
    for (int i = 0; i < 100; ++i) {
      const std::string word = i < 60 ? random_word(random, 12) : random_word(random, 80);
      std::vector<TokenId> symbols;
      for (const char c : word) symbols.push_back(c - 'a');
      std::vector<TokenId> ids;
      bpe.encode(word, scratch, ids);
      ASSERT_EQ(ids, slow_merge(symbols, merges)) << "seed 5, round " << round << ", word " << word;
    }
  }
}

TEST(Bpe, UsesAPieceWholeOnlyWhenMergesMakeItOrTheyAreIgnored) {
  const std::vector<std::string_view> pieces = {"a", "b", "ab", "aba"};  // nothing makes "aba"
  const std::vector<Merge> merges = {{0, 1, 2, 0}};
  for (const bool ignores : {false, true}) {
    Vocab vocab(pieces, {});
    BpeOptions options;
    options.byte_level = true;
    options.ignore_merges = ignores;
    const Bpe bpe(vocab, merges, options);
    Scratch scratch;
    std::vector<TokenId> ids;
    bpe.encode("aba", scratch, ids);
    EXPECT_EQ(ids, ignores ? std::vector<TokenId>{3} : (std::vector<TokenId>{2, 0}));
  }
}

// SentencePiece: joins any two neighbours whose text is a piece, the best score first.
TEST(Bpe, MergesByScoreLikeTheSlowVersion) {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> texts = {"a", "b", "▁"};  // "c" is no piece, yet occurs in some
    for (int i = 0; i < 30; ++i) {
      std::string text = (random() % 3 == 0 ? "▁" : "") + random_word(random, 5);
      if (text.size() > 1 && std::find(texts.begin(), texts.end(), text) == texts.end())
        texts.push_back(text);
    }
    std::vector<float> scores;
    for (std::size_t i = 0; i < texts.size(); ++i)
      scores.push_back(-static_cast<float>(random() % 15));
    const std::vector<std::string_view> pieces(texts.begin(), texts.end());
    Vocab vocab(pieces, {});
    BpeOptions options;
    options.falls_back_late = true;
    options.unknown = 1000;
    options.byte_pieces.fill(kNoToken);
    const std::vector<Merge> merges = merges_from_scores(vocab, scores, options);
    const Bpe bpe(vocab, merges, options);
    Scratch scratch;
    for (int i = 0; i < 50; ++i) {
      std::string word = "▁" + random_word(random, 20) + "▁" + random_word(random, 20, "abcd");
      std::vector<std::string> symbols;
      for (std::size_t k = 0; k < word.size(); k += utf8_length(word[k])) {
        symbols.push_back(word.substr(k, utf8_length(word[k])));
      }
      for (;;) {
        std::size_t best = symbols.size();
        float best_score = -std::numeric_limits<float>::infinity();
        for (std::size_t k = 0; k + 1 < symbols.size(); ++k) {
          const TokenId id = vocab.id_of(symbols[k] + symbols[k + 1]);
          if (id == kNoToken || scores[static_cast<std::size_t>(id)] <= best_score) continue;
          best = k;
          best_score = scores[static_cast<std::size_t>(id)];
        }
        if (best == symbols.size()) break;
        symbols[best] += symbols[best + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      }
      std::vector<TokenId> expected;
      for (const std::string& symbol : symbols)
        expected.push_back(vocab.id_of(symbol) == kNoToken ? 1000 : vocab.id_of(symbol));
      std::vector<TokenId> ids;
      bpe.encode(word, scratch, ids);
      ASSERT_EQ(ids, expected) << "seed 9, round " << round << ", word " << word;
    }
  }
}

TEST(Bpe, TakesUnusedPiecesApartAgain) {
  const std::vector<std::string_view> pieces = {"a", "b", "ab", "abb"};
  const std::vector<float> scores = {0, 0, -1, -2};
  Vocab vocab(pieces, {});
  BpeOptions options;
  options.falls_back_late = true;
  options.is_unused = {0, 0, 1, 0};
  const std::vector<Merge> merges = merges_from_scores(vocab, scores, options);
  const Bpe bpe(vocab, merges, options);
  Scratch scratch;
  std::vector<TokenId> ids;
  bpe.encode("ababb", scratch, ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{0, 1, 3}));
}

TEST(Unigram, FindsTheBestSumOfScores) {
  std::mt19937 random(13);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::string> texts = {"<unk>", "a", "b"};
    for (int i = 0; i < 15; ++i) {
      std::string text = random_word(random, 4);
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
    }
    std::vector<double> scores(texts.size());
    for (double& score : scores)
      score = -static_cast<double>(random() % 1000) / 100 -
              0.001 * static_cast<double>(&score - scores.data());
    const std::vector<std::string_view> pieces(texts.begin(), texts.end());
    Vocab vocab(pieces, {});
    UnigramOptions options;
    options.unknown = 0;
    const Unigram unigram(vocab, scores, options);
    Scratch scratch;
    const double unknown = *std::min_element(scores.begin(), scores.end()) - 10;
    for (int i = 0; i < 40; ++i) {
      const std::string word = random_word(random, 9);
      // Best score over all cuts, by trying them.
      double best = -std::numeric_limits<double>::infinity();
      for (unsigned cuts = 0; cuts < 1U << (word.size() - 1); ++cuts) {
        double sum = 0;
        std::size_t begin = 0;
        for (std::size_t k = 1; k <= word.size(); ++k) {
          if (k < word.size() && (cuts >> (k - 1) & 1) == 0) continue;
          const TokenId id = vocab.id_of(word.substr(begin, k - begin));
          sum += id != kNoToken   ? scores[static_cast<std::size_t>(id)]
                 : k - begin == 1 ? unknown
                                  : -1e9;
          begin = k;
        }
        best = std::max(best, sum);
      }
      std::vector<TokenId> ids;
      unigram.encode(word, scratch, ids);
      double found = 0;
      std::string joined;
      for (const TokenId id : ids) {
        found += scores[static_cast<std::size_t>(id)];
        joined += texts[static_cast<std::size_t>(id)];
      }
      if (std::find(ids.begin(), ids.end(), 0) != ids.end())
        continue;  // fused unknowns have no score of their own
      ASSERT_EQ(joined, word);
      ASSERT_NEAR(found, best, 1e-9) << "seed 13, round " << round << ", word " << word;
    }
  }
}

TEST(WordPiece, TakesTheLongestPieceOrGivesUpOnTheWord) {
  const std::vector<std::string_view> pieces = {"[UNK]", "un", "##aff", "##able", "##a", "unaffab"};
  Vocab vocab(pieces, {});
  WordPieceOptions options;
  options.unknown = 0;
  options.max_characters = 10;
  const WordPiece model(vocab, options);
  Scratch scratch;
  const auto encode = [&](std::string_view word) {
    std::vector<TokenId> ids;
    model.encode(word, scratch, ids);
    return ids;
  };
  EXPECT_EQ(encode("unaff"), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(encode("unaffable"),
            (std::vector<TokenId>{0}));  // "unaffab" is longer, and then nothing fits
  EXPECT_EQ(encode("unaaaaaaaa"), (std::vector<TokenId>{1, 4, 4, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(encode("unaaaaaaaaa"), (std::vector<TokenId>{0}));  // too long
}

}  // namespace
}  // namespace llorch::tokenizer
