#include "cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

constexpr int kEndOfInput = -1;
constexpr int kInterruptSeen = -2;
constexpr std::size_t kReadBytes = 4096;
constexpr std::size_t kPastedBytesMax = std::size_t{1} << 20;
constexpr std::size_t kLineBytesMax = std::size_t{4} << 20;
constexpr int kHistoryLines = 500;
constexpr const char* kPasteBegin = "\x1b[200~";
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr std::string_view kPasteMarksOn = "\x1b[?2004h";
constexpr std::string_view kPasteMarksOff = "\x1b[?2004l";

}  // namespace

// libedit on our terminal. It asks us for each character, so that a signal can end the wait.
class LineEditor::Terminal {
 public:
  explicit Terminal(LineEditor& owner) : owner_(owner) {
    // Characters are UTF-8 for us whatever the locale says; libedit asks the C library.
    if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX < 2)
      std::setlocale(LC_CTYPE, "C.UTF-8");
    history_ = ::history_init();
    editor_ = ::el_init("llorch", stdin, stdout, stderr);
    CHECK(editor_ != nullptr && history_ != nullptr, "no memory at the start of the program");
    HistEvent event{};
    ::history(history_, &event, H_SETSIZE, kHistoryLines);
    ::history(history_, &event, H_SETUNIQUE, 1);
    ::el_set(editor_, EL_CLIENTDATA, this);
    ::el_set(editor_, EL_EDITOR, "emacs");
    ::el_set(editor_, EL_SIGNAL, 0);
    ::el_set(editor_, EL_HIST, ::history, history_);
    ::el_set(editor_, EL_PROMPT, &Terminal::prompt_of);
    ::el_set(editor_, EL_GETCFN, &Terminal::read_character);
    ::el_set(editor_, EL_ADDFN, "llorch-paste", "takes a pasted text", &Terminal::take_paste);
    ::el_set(editor_, EL_BIND, kPasteBegin, "llorch-paste", nullptr);
    ::el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  ~Terminal() {
    ::el_end(editor_);
    ::history_end(history_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  Outcome read(const std::string& prompt, std::string& line) {
    prompt_ = prompt;
    interrupted_ = false;
    write_out(kPasteMarksOn);
    // Before the prompt shows, not with the first key: a Ctrl-D that is typed in between would
    // belong to the terminal's own line editing, and be lost.
    ::el_set(editor_, EL_PREP_TERM, 1);
    int count = 0;
    const char* text = ::el_gets(editor_, &count);
    write_out(kPasteMarksOff);
    if (interrupted_ || text == nullptr || count <= 0) {
      write_out("\n");
      return interrupted_ ? Outcome::Interrupted : Outcome::End;
    }
    line.assign(text, static_cast<std::size_t>(count));
    if (line.ends_with('\n')) line.pop_back();
    return Outcome::Line;
  }

  void remember(const std::string& line) {
    HistEvent event{};
    ::history(history_, &event, H_ENTER, line.c_str());
  }

 private:
  static Terminal& self(EditLine* editor) {
    void* data = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<Terminal*>(data);
  }

  static char* prompt_of(EditLine* editor) { return self(editor).prompt_.data(); }

  // 1 with a character, 0 at the end, -1 when there is none.
  static int read_character(EditLine* editor, wchar_t* character) {
    Terminal& terminal = self(editor);
    std::mbstate_t state{};
    for (;;) {
      const int byte = terminal.owner_.read_byte();
      if (byte == kInterruptSeen) {
        terminal.interrupted_ = true;
        return -1;
      }
      if (byte < 0) return 0;
      const char part = static_cast<char>(byte);
      const std::size_t got = std::mbrtowc(character, &part, 1, &state);
      if (got == static_cast<std::size_t>(-2)) continue;  // more of it comes
      if (got == static_cast<std::size_t>(-1)) {
        *character = L'\ufffd';
        return 1;
      }
      return 1;
    }
  }

  // Between the marks everything is text, line breaks too.
  static unsigned char take_paste(EditLine* editor, int) {
    Terminal& terminal = self(editor);
    std::string text;
    while (!text.ends_with(kPasteEnd)) {
      const int byte = terminal.owner_.read_byte();
      if (byte < 0) {
        terminal.interrupted_ = byte == kInterruptSeen;
        return CC_EOF;
      }
      if (text.size() < kPastedBytesMax + kPasteEnd.size()) {
        text += static_cast<char>(byte == '\r' ? '\n' : byte);
      } else {  // the mark is still looked for
        text.erase(kPastedBytesMax, 1);
        text += static_cast<char>(byte);
      }
    }
    text.resize(text.size() - kPasteEnd.size());
    std::string clean;
    for (const char c : base::to_valid_utf8(text)) {
      const auto value = static_cast<unsigned char>(c);
      if (value >= 0x20 && value != 0x7f) clean += c;
      if (c == '\n') clean += c;
      if (c == '\t') clean += "    ";
    }
    if (!clean.empty() && ::el_insertstr(editor, clean.c_str()) != 0) return CC_ERROR;
    return CC_REFRESH;
  }

  LineEditor& owner_;
  History* history_ = nullptr;
  EditLine* editor_ = nullptr;
  std::string prompt_;
  bool interrupted_ = false;
};

LineEditor::LineEditor()
    : is_terminal_(::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK(wake_fd_ >= 0, "no file descriptors left at the start of the program");
  if (is_terminal_) terminal_ = std::make_unique<Terminal>(*this);
}

LineEditor::~LineEditor() {
  terminal_.reset();
  ::close(wake_fd_);
}

LineEditor::Outcome LineEditor::read(const std::string& prompt, std::string& line) {
  line.clear();
  return terminal_ != nullptr ? terminal_->read(prompt, line) : read_from_pipe(line);
}

void LineEditor::remember(const std::string& line) {
  if (terminal_ != nullptr) terminal_->remember(line);
}

void LineEditor::interrupt() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(wake_fd_, &one, sizeof one);
}

int LineEditor::read_byte() {
  if (used_ < buffer_.size()) return static_cast<unsigned char>(buffer_[used_++]);
  for (;;) {
    std::array<pollfd, 2> fds = {pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{wake_fd_, POLLIN, 0}};
    if (::poll(fds.data(), fds.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return kEndOfInput;
    }
    if (fds[1].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t ignored = ::read(wake_fd_, &count, sizeof count);
      return kInterruptSeen;
    }
    std::array<char, kReadBytes> bytes{};
    const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return kEndOfInput;
    buffer_.assign(bytes.data(), static_cast<std::size_t>(got));
    used_ = 1;
    return static_cast<unsigned char>(buffer_[0]);
  }
}

LineEditor::Outcome LineEditor::read_from_pipe(std::string& line) {
  for (;;) {
    const int byte = read_byte();
    if (byte == kInterruptSeen) return Outcome::Interrupted;
    if (byte < 0) return line.empty() ? Outcome::End : Outcome::Line;
    if (byte == '\n') return Outcome::Line;
    if (line.size() < kLineBytesMax) line += static_cast<char>(byte);
  }
}

}  // namespace llorch::cli
