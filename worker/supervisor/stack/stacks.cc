// Walks the stacks of the threads of another process with libdw.
#include "worker/supervisor/stack/stacks.h"

#include <cxxabi.h>
#include <dirent.h>
#include <elfutils/libdwfl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

namespace trainyard::supervisor {
namespace {

constexpr int kFramesMax = 64;
constexpr size_t kThreadsMax = 64;

struct FreeText {
  void operator()(char* text) const { std::free(text); }
};
struct EndSession {
  void operator()(Dwfl* session) const { dwfl_end(session); }
};

// Symbols are taken only from the programs themselves. A search for files of debug information
// might go over the network.
int FindNoDebugInfo(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                    GElf_Word, char**) {
  return -1;
}

struct ThreadPrint {
  Dwfl* session;
  std::FILE* out;
  int frames = 0;
};

std::string Demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, FreeText> text(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status));
  return status == 0 && text != nullptr ? text.get() : symbol;
}

int PrintFrame(Dwfl_Frame* frame, void* argument) {
  auto& print = *static_cast<ThreadPrint*>(argument);
  Dwarf_Addr address = 0;
  bool is_activation = false;
  if (!dwfl_frame_pc(frame, &address, &is_activation)) return DWARF_CB_ABORT;
  // A return address may lie after the end of the function that called.
  const Dwarf_Addr inside = address - (is_activation ? 0 : 1);
  Dwfl_Module* module = dwfl_addrmodule(print.session, inside);
  const char* symbol = module == nullptr ? nullptr : dwfl_module_addrname(module, inside);
  const char* file = module == nullptr ? nullptr
                                       : dwfl_module_info(module, nullptr, nullptr, nullptr,
                                                          nullptr, nullptr, nullptr, nullptr);
  const char* slash = file == nullptr ? nullptr : std::strrchr(file, '/');
  const char* base = slash == nullptr ? file : slash + 1;
  std::fprintf(print.out, "  #%d %s (%s)\n", print.frames,
               symbol == nullptr ? "??" : Demangled(symbol).c_str(),
               base == nullptr ? "unknown" : base);
  return ++print.frames < kFramesMax ? DWARF_CB_OK : DWARF_CB_ABORT;
}

std::string NameOfThread(pid_t pid, pid_t thread) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(thread) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

// The threads ascend, so that the main thread comes first.
std::vector<pid_t> ThreadsOf(pid_t pid) {
  std::vector<pid_t> threads;
  DIR* folder = opendir(("/proc/" + std::to_string(pid) + "/task").c_str());
  if (folder == nullptr) return threads;
  while (const dirent* entry = readdir(folder)) {
    const long thread = std::strtol(entry->d_name, nullptr, 10);
    if (thread > 0) threads.push_back(static_cast<pid_t>(thread));
  }
  closedir(folder);
  std::sort(threads.begin(), threads.end());
  const auto main = std::find(threads.begin(), threads.end(), pid);
  if (main != threads.end()) std::rotate(threads.begin(), main, main + 1);
  if (threads.size() > kThreadsMax) threads.resize(kThreadsMax);
  return threads;
}

const char* LastError() {
  const char* message = dwfl_errmsg(-1);
  return message == nullptr ? "unknown error" : message;
}

}  // namespace

bool PrintStacks(pid_t pid, std::FILE* out, std::string& error) {
  static const Dwfl_Callbacks kCallbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                            .find_debuginfo = FindNoDebugInfo,
                                            .section_address = nullptr,
                                            .debuginfo_path = nullptr};
  const std::unique_ptr<Dwfl, EndSession> session(dwfl_begin(&kCallbacks));
  if (session == nullptr) {
    error = LastError();
    return false;
  }
  dwfl_report_begin(session.get());
  const int mapped = dwfl_linux_proc_report(session.get(), pid);
  if (mapped != 0 || dwfl_report_end(session.get(), nullptr, nullptr) != 0) {
    error = mapped > 0 ? std::strerror(mapped) : LastError();
    return false;
  }
  const int attached = dwfl_linux_proc_attach(session.get(), pid, /*assume_ptrace_stopped=*/false);
  if (attached != 0) {
    error = attached > 0 ? std::strerror(attached) : LastError();
    return false;
  }
  int frames = 0;
  for (const pid_t thread : ThreadsOf(pid)) {
    std::fprintf(out, "thread %d (%s)\n", thread, NameOfThread(pid, thread).c_str());
    ThreadPrint print{.session = session.get(), .out = out};
    // Returns an error if the frames cannot be followed to their end, as in generated code.
    if (dwfl_getthread_frames(session.get(), thread, PrintFrame, &print) < 0 && print.frames == 0) {
      error = LastError();
      std::fprintf(out, "  (no frames: %s)\n", error.c_str());
    }
    std::fflush(out);
    frames += print.frames;
  }
  return frames > 0;
}

}  // namespace trainyard::supervisor
