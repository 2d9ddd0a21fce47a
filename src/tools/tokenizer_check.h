// Whether a tokenizer that was written and read back is still the same. Private to
// export_tokenizer.cc.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "tools/tokenizer_draft.h"

namespace llorch::tools {

// The pieces, the special ids, what is put around a text and what ends it.
Status check_facts(const Tokenizer& source, const Tokenizer& back);
// A set of texts. Differences that plain text does not see become `notes`.
Status check_texts(const TokenizerDraft& draft, const Tokenizer& source, const Tokenizer& back,
                   std::vector<std::string>& notes);

}  // namespace llorch::tools
