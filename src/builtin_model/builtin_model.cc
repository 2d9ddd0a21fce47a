#include "builtin_model/builtin_model.h"

#include "contract/model_entry.h"
#include "formats/gguf_reader.h"

// Aligned for any vector load of the tensors, whose offsets in the image are multiples of 32.
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".globl llorch_stories_begin\n"
    ".hidden llorch_stories_begin\n"
    "llorch_stories_begin:\n"
    ".incbin \"" LLORCH_STORIES_GGUF
    "\"\n"
    ".globl llorch_stories_end\n"
    ".hidden llorch_stories_end\n"
    "llorch_stories_end:\n"
    ".byte 0\n"
    ".popsection\n");

// The labels above. NOLINTBEGIN(readability-identifier-naming)
extern "C" {
extern const std::byte llorch_stories_begin[];
extern const std::byte llorch_stories_end[];
}
// NOLINTEND(readability-identifier-naming)

namespace llorch::builtin_model {

std::span<const std::byte> gguf() {
  return {llorch_stories_begin, llorch_stories_end};
}

Result<formats::WeightFile> open() {
  Result<formats::WeightFile> file = formats::parse_gguf(gguf(), contract::kBuiltinModel);
  if (file.ok()) file->lies_in_program(gguf());
  return file;
}

}  // namespace llorch::builtin_model
