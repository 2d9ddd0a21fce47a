// The providers behind resolve_source, one file each. Private to fetch/.
#pragma once

#include <stop_token>
#include <string>

#include "fetch/fetch_text.h"
#include "fetch/source.h"

namespace llorch::fetch {

Result<ModelSource> resolve_hub(const ModelRef& ref, const SourceOptions& options,
                                const std::stop_token& stop);
Result<std::string> newest_hub_revision(const ModelRef& ref, const SourceOptions& options,
                                        const std::stop_token& stop);

Result<ModelSource> resolve_npm(const ModelRef& ref, const SourceOptions& options,
                                const std::stop_token& stop);
Result<std::string> newest_npm_revision(const ModelRef& ref, const SourceOptions& options,
                                        const std::stop_token& stop);

Result<ModelSource> resolve_web(const ModelRef& ref, const SourceOptions& options,
                                const std::stop_token& stop);
Result<std::string> newest_web_revision(const ModelRef& ref, const SourceOptions& options,
                                        const std::stop_token& stop);

// What the providers share.
inline constexpr std::size_t kMetadataBytesMax = std::size_t{64} << 20;
Result<TextAnswer> ask(FetchRequest request, const SourceOptions& options,
                       const std::stop_token& stop, bool head_only = false);

}  // namespace llorch::fetch
