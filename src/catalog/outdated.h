// Has a model's source something newer than what is here?
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "contract/fields.h"
#include "contract/model_entry.h"
#include "fetch/source.h"

namespace llorch::catalog {

struct RevisionCheck {
  enum class State : std::uint8_t {
    Current,
    Outdated,
    Untracked,  // there is nothing to compare: `note` says why
    Failed,     // the source did not say: `note` has its words
  };
  std::string id;
  std::string ref;     // where it came from
  std::string have;    // the revision that was fetched
  std::string newest;  // Current and Outdated
  State state = State::Untracked;
  std::string note;
};
inline constexpr base::EnumNames<RevisionCheck::State::Failed> kRevisionStates("current",
                                                                               "outdated",
                                                                               "untracked",
                                                                               "failed");
template <class V, contract::Described<RevisionCheck> T>
void describe(V& v, T& check) {
  v("id", check.id);
  v("ref", check.ref);
  v("revision", check.have);
  v("state", check.state, {.names = kRevisionStates.words()});
  v("newest", check.newest, {.omit_empty = true});
  v("note", check.note, {.omit_empty = true});
}

// Every downloaded model of the list, in its order; the sources are asked several at a time, and
// one that fails does not keep the others.
std::vector<RevisionCheck> check_revisions(const std::vector<contract::ModelEntry>& models,
                                           const fetch::SourceOptions& options,
                                           std::stop_token stop);

}  // namespace llorch::catalog
