// Texts that stand in HTTP headers.
#pragma once

#include <string_view>

namespace llorch::base {

// Whether a Content-Type says JSON, whatever its case and parameters.
bool is_json_type(std::string_view content_type);

// Whether a text would end its header's line, and begin headers of its own, or disturb it
// otherwise: anything below a space but a tab, and DEL.
bool has_control_characters(std::string_view text);

}  // namespace llorch::base
