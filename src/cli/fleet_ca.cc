// llorch ca: the certificate authority of this home, and how others come to trust it.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "api/local_ca.h"
#include "base/terminal.h"
#include "cli/fleet_command.h"
#include "cli/output.h"
#include "cli/parse_words.h"

namespace llorch::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  llorch ca
  llorch ca --pem > llorch-ca.pem          for another machine; then, there:
  llorch status --orchestrator https://box:8080 --ca-file llorch-ca.pem

Where orchestratord or pool-managerd listens beyond loopback without a certificate of
its own, it gets one of this home's authority, which is made when it is first needed. Its
key never leaves the home. Compare the fingerprint with whoever sent you the file.)";

struct TrustLine {
  const char* who;
  std::string line;
};

std::vector<TrustLine> trust_lines(const std::string& file) {
  return {{"curl", fmt::format("curl --cacert {} https://…", file)},
          {"OpenAI's Python client", fmt::format("export SSL_CERT_FILE={}", file)},
          {"Node.js", fmt::format("export NODE_EXTRA_CA_CERTS={}", file)},
          {"llorch elsewhere", fmt::format("export LLORCH_CA_FILE={}", file)},
          {"Debian, Ubuntu",
           fmt::format("sudo install -m 644 {} /usr/local/share/ca-certificates/llorch.crt && sudo "
                       "update-ca-certificates",
                       file)},
          {"Fedora",
           fmt::format("sudo install -m 644 {} /etc/pki/ca-trust/source/anchors/llorch.pem && sudo "
                       "update-ca-trust",
                       file)}};
}

int show_ca(const FleetContext& context, bool pem_only) {
  const Result<api::CaFacts> ca = api::find_or_make_ca(context.home, std::time(nullptr));
  if (!ca.ok()) return fail(ca.error());
  if (pem_only) return print(ca->pem);
  const std::string file = api::ca_file(context.home).string();
  std::vector<std::string> names =
      api::names_in_certificate(api::ca_file(context.home).replace_filename("orchestrator.pem"));
  if (context.json_output) {
    json::Array shown(names.begin(), names.end());
    return print_json(json::Object{{"file", file},
                                   {"fingerprint_sha256", ca->fingerprint},
                                   {"valid_until", ca->valid_until},
                                   {"made_now", ca->was_made},
                                   {"orchestrator_names", std::move(shown)},
                                   {"pem", ca->pem}});
  }
  std::string text = fmt::format("file          {}{}\nfingerprint   SHA-256 {}\nvalid until   {}\n",
                                 base::printable(file), ca->was_made ? ", made just now" : "",
                                 ca->fingerprint, ca->valid_until);
  if (!names.empty()) {
    text += "certificate   ";
    for (std::size_t i = 0; i < names.size(); ++i)
      text += (i > 0 ? ", " : "") + base::printable(names[i].substr(names[i].find(':') + 1));
    text += "\n";
  }
  text += "\nTo trust it (elsewhere: copy the file first, `llorch ca --pem`):\n\n";
  for (const TrustLine& one : trust_lines(shell_word(base::printable(file))))
    text += fmt::format("  {}\n    {}\n", one.who, one.line);
  return print(text);
}

}  // namespace

void add_ca_command(CLI::App& app, FleetContext& context) {
  auto pem_only = std::make_shared<bool>(false);
  add_fleet_command(app, context, "ca", "this home's certificate authority, and how to trust it",
                    kFooter, [&context, pem_only] { return show_ca(context, *pem_only); })
      ->add_flag("--pem", *pem_only, "print the certificate alone");
}

}  // namespace llorch::cli
