// Runs a fuzz target over its committed corpus as an ordinary test: every file of the given folders
// and files, plus every truncation of the small ones. Fails when there is nothing to run.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kTruncateUpToBytes = 4096;

std::size_t replay(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> content{std::istreambuf_iterator<char>(in), {}};
  const auto run = [&content](std::size_t size) {
    // An exact-size copy, so that a sanitizer sees a read one byte past the end.
    const std::vector<std::uint8_t> input(content.begin(),
                                          content.begin() + static_cast<std::ptrdiff_t>(size));
    LLVMFuzzerTestOneInput(input.data(), input.size());
  };
  run(content.size());
  if (content.size() > kTruncateUpToBytes) return 1;
  for (std::size_t size = 0; size < content.size(); ++size) run(size);
  return content.size() + 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t inputs = 0;
  for (int i = 1; i < argc; ++i) {
    const std::filesystem::path root = argv[i];
    if (std::filesystem::is_regular_file(root)) inputs += replay(root);
    if (!std::filesystem::is_directory(root)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.is_regular_file()) inputs += replay(entry.path());
    }
  }
  std::printf("%zu inputs replayed\n", inputs);
  if (inputs == 0) {
    std::fprintf(stderr, "no corpus: expected files under the given paths\n");
    return 1;
  }
  return 0;
}
