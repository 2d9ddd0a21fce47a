#include "fetch/published.h"

#include "base/digest.h"

namespace llorch::fetch {

std::string identity_of(const RemoteFile& file) {
  if (!file.sha256.empty()) return "sha256:" + file.sha256;
  if (!file.integrity.empty()) return file.integrity;
  if (!file.git_sha1.empty()) return "git-sha1:" + file.git_sha1;
  if (!file.chunk_sha256.empty()) {
    base::Digest digest;
    for (const std::string& chunk : file.chunk_sha256) digest.add(chunk);
    return "chunks:" + digest.finish_hex();
  }
  return file.etag.empty() ? std::string() : "etag:" + file.etag;
}

bool is_checked(const RemoteFile& file) {
  return !file.sha256.empty() || !file.git_sha1.empty() || !file.integrity.empty() ||
         !file.chunk_sha256.empty();
}

std::optional<Mismatch> find_mismatch(const RemoteFile& file, const WholeHashes& hashes) {
  if (!file.sha256.empty() && file.sha256 != hashes.sha256)
    return Mismatch{"sha256 " + file.sha256, hashes.sha256};
  if (!file.git_sha1.empty() && file.git_sha1 != hashes.git_sha1)
    return Mismatch{"git sha1 " + file.git_sha1, hashes.git_sha1};
  if (!file.integrity.empty() && file.integrity != "sha512-" + hashes.sha512_base64)
    return Mismatch{file.integrity, "sha512-" + hashes.sha512_base64};
  return std::nullopt;
}

PrefixHasher::Wanted wanted_hashes(const RemoteFile& file) {
  return {.sha512 = !file.integrity.empty(), .git_sha1 = !file.git_sha1.empty()};
}

}  // namespace llorch::fetch
