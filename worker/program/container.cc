// Puts the words of the container runtimes together. Each has its own, and none of them is asked
// for more than the same few things: an image, mounts, variables, GPUs and a folder to start in.
#include "worker/program/container.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/files.h"

namespace trainyard::program {
namespace {

using Words = std::vector<std::string>;

// The exit codes with which the runtimes say that they have failed themselves.
constexpr int kPodmanFailed = 125;
constexpr int kApptainerFailed = 255;

void Append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Returns what is mounted into the container, without the home: the image has its own software.
Words FoldersOf(const Mounts& mounts) {
  Words folders = mounts.write;
  folders.push_back(mounts.start);
  return folders;
}

// `--cgroups disabled` keeps the container in the rank's control group.
Words PodmanWords(const run_dir::Isolation& isolation, const Image& image, const Mounts& mounts,
                  const Variables& variables) {
  Words words = {isolation.program,
                 "run",
                 "--rm",
                 "--network",
                 "host",
                 "--ipc",
                 "host",
                 "--pid",
                 "host",
                 "--log-driver",
                 "none",
                 "--security-opt",
                 "label=disable"};
  for (const std::string& limit : mounts.limits) Append(words, {"--ulimit", limit});
  if (!isolation.cgroup.empty()) Append(words, {"--cgroups", "disabled"});
  if (geteuid() != 0) Append(words, {"--userns", "keep-id"});
  for (const std::string& folder : FoldersOf(mounts)) {
    Append(words, {"--volume", absl::StrCat(folder, ":", folder)});
  }
  for (const std::string& folder : mounts.read) {
    Append(words, {"--volume", absl::StrCat(folder, ":", folder, ":ro")});
  }
  for (const std::string& uuid : mounts.gpu_uuids) {
    Append(words, {"--device", absl::StrCat("nvidia.com/gpu=", uuid)});
  }
  for (const auto& [name, value] : variables) {
    if (value.has_value()) Append(words, {"--env", name});
  }
  Append(words, {"--workdir", mounts.start, "--entrypoint", ""});
  if (image.kind == Image::Kind::kFolder) words.push_back("--rootfs");
  words.push_back(image.kind == Image::Kind::kFile ? absl::StrCat("docker-archive:", image.name)
                                                   : image.name);
  return words;
}

// The variables of this process reach the program without being named.
Words ApptainerWords(const run_dir::Isolation& isolation, const Image& image,
                     const Mounts& mounts) {
  Words words = {isolation.program, "--quiet", "exec", "--contain", "--no-home"};
  if (!mounts.gpu_uuids.empty()) words.push_back("--nv");
  for (const std::string& folder : FoldersOf(mounts)) Append(words, {"--bind", folder});
  for (const std::string& folder : mounts.read) {
    Append(words, {"--bind", absl::StrCat(folder, ":", folder, ":ro")});
  }
  const bool is_docker =
      image.kind == Image::Kind::kReference && !absl::StrContains(image.name, "://");
  Append(words, {"--pwd", mounts.start, absl::StrCat(is_docker ? "docker://" : "", image.name)});
  return words;
}

// The folders to mount must be in the image, or it must be possible to make them there.
Words CharliecloudWords(const run_dir::Isolation& isolation, const Image& image,
                        const Mounts& mounts) {
  Words words = {isolation.program, "--private-tmp"};
  if (image.kind == Image::Kind::kFolder) words.push_back("--write");
  for (const std::string& folder : mounts.read) words.push_back(absl::StrCat("--bind=", folder));
  for (const std::string& folder : FoldersOf(mounts)) {
    words.push_back(absl::StrCat("--bind=", folder));
  }
  Append(words, {absl::StrCat("--cd=", mounts.start), image.name, "--"});
  return words;
}

// It has no flag for the folder in which the program starts.
Words EnrootWords(const run_dir::Isolation& isolation, const Image& image, const Mounts& mounts,
                  const Variables& variables) {
  Words words = {isolation.program, "start"};
  for (const std::string& folder : FoldersOf(mounts)) {
    Append(words, {"--mount", absl::StrCat(folder, ":", folder)});
  }
  for (const std::string& folder : mounts.read) {
    Append(words, {"--mount", absl::StrCat(folder, ":", folder, ":bind,ro,x-create=dir")});
  }
  for (const auto& [name, value] : variables) {
    if (value.has_value()) Append(words, {"--env", name});
  }
  const std::string gpus = mounts.gpu_uuids.empty() ? "void" : absl::StrJoin(mounts.gpu_uuids, ",");
  Append(words, {"--env", absl::StrCat("NVIDIA_VISIBLE_DEVICES=", gpus), image.name, "/bin/sh",
                 "-c", "cd \"$1\" && shift && exec \"$@\"", "sh", mounts.start});
  return words;
}

}  // namespace

Image ImageOf(const std::string& text, const std::string& start, const std::string& home) {
  const bool is_path =
      absl::StartsWith(text, "/") || absl::StartsWith(text, ".") || absl::StartsWith(text, "~");
  if (!is_path) return {text, Image::Kind::kReference};
  std::string path = Expanded(text, home);
  if (path[0] == '.') path = JoinPath(start, path);
  struct stat info {};
  const bool is_folder = stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  return {path, is_folder ? Image::Kind::kFolder : Image::Kind::kFile};
}

absl::StatusOr<std::vector<std::string>> ContainerWords(const run_dir::Isolation& isolation,
                                                        const Image& image, const Mounts& mounts,
                                                        const Variables& variables,
                                                        const std::vector<std::string>& command) {
  Words words;
  if (isolation.runtime == "podman") {
    words = PodmanWords(isolation, image, mounts, variables);
  } else if (isolation.runtime == "apptainer") {
    words = ApptainerWords(isolation, image, mounts);
  } else if (isolation.runtime == "charliecloud") {
    words = CharliecloudWords(isolation, image, mounts);
  } else if (isolation.runtime == "enroot") {
    if (image.kind != Image::Kind::kFile) {
      return absl::InvalidArgumentError(
          absl::StrCat("enroot cannot run the image '", image.name,
                       "'; give it a file that `enroot import` has made"));
    }
    words = EnrootWords(isolation, image, mounts, variables);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("'", isolation.runtime, "' is no container runtime that is known here"));
  }
  Append(words, command);
  return words;
}

bool IsRuntimeFailure(const std::string& runtime, int exit_code) {
  if (runtime == "podman") return exit_code == kPodmanFailed;
  return runtime == "apptainer" && exit_code == kApptainerFailed;
}

}  // namespace trainyard::program
