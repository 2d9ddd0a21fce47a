#include "orchestrator/web_page.h"

#include <array>
#include <string>

// The bytes of a file of web/ between two labels.
#define LLORCH_WEB_FILE(name, file)                                     \
  asm(".pushsection .rodata\n"                                          \
      ".globl llorch_web_" #name                                        \
      "_begin\n"                                                        \
      ".hidden llorch_web_" #name                                       \
      "_begin\n"                                                        \
      "llorch_web_" #name                                               \
      "_begin:\n"                                                       \
      ".incbin \"" LLORCH_WEB_FOLDER "/" file                           \
      "\"\n"                                                            \
      ".globl llorch_web_" #name                                        \
      "_end\n"                                                          \
      ".hidden llorch_web_" #name                                       \
      "_end\n"                                                          \
      "llorch_web_" #name                                               \
      "_end:\n"                                                         \
      ".byte 0\n"                                                       \
      ".popsection\n");                                                 \
  /* The labels above. NOLINTNEXTLINE(readability-identifier-naming) */ \
  extern "C" const char llorch_web_##name##_begin[], llorch_web_##name##_end[]

LLORCH_WEB_FILE(index, "index.html");
LLORCH_WEB_FILE(css, "house.css");
LLORCH_WEB_FILE(main, "main.js");
LLORCH_WEB_FILE(wire, "wire.js");
LLORCH_WEB_FILE(words, "words.js");
LLORCH_WEB_FILE(draw, "draw.js");
LLORCH_WEB_FILE(house, "house.js");
LLORCH_WEB_FILE(ask, "ask.js");

namespace llorch::orchestrator {
namespace {

// What the page may do, as its browser is told: nothing that is not from here, no frames, no forms
// that lead elsewhere.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
constexpr std::string_view kScript = "text/javascript; charset=utf-8";

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace

std::span<const WebFile> web_files() {
  static const std::array files = {
      WebFile{"/", "text/html; charset=utf-8",
              between(llorch_web_index_begin, llorch_web_index_end)},
      WebFile{"/web/house.css", "text/css; charset=utf-8",
              between(llorch_web_css_begin, llorch_web_css_end)},
      WebFile{"/web/main.js", kScript, between(llorch_web_main_begin, llorch_web_main_end)},
      WebFile{"/web/wire.js", kScript, between(llorch_web_wire_begin, llorch_web_wire_end)},
      WebFile{"/web/words.js", kScript, between(llorch_web_words_begin, llorch_web_words_end)},
      WebFile{"/web/draw.js", kScript, between(llorch_web_draw_begin, llorch_web_draw_end)},
      WebFile{"/web/house.js", kScript, between(llorch_web_house_begin, llorch_web_house_end)},
      WebFile{"/web/ask.js", kScript, between(llorch_web_ask_begin, llorch_web_ask_end)},
  };
  return files;
}

void add_web_files(http::Router& router) {
  for (const WebFile& file : web_files()) {
    router.add(http::Method::Get, file.path,
               http::PlainHandler([&file](const http::Request&) -> Result<http::Response> {
                 http::Response response(200, std::string(file.content_type),
                                         std::string(file.content));
                 response.headers.set("Content-Security-Policy", std::string(kPolicy));
                 response.headers.set("X-Content-Type-Options", "nosniff");
                 response.headers.set("Referrer-Policy", "no-referrer");
                 response.headers.set("Cache-Control", "no-cache");
                 return response;
               }));
  }
}

}  // namespace llorch::orchestrator
