// Without a repository, a temporary one with the folder as its working tree reads the patterns. A
// second temporary one knows the patterns of `.trainyardignore` alone, which also leave out what
// git tracks.
#include "client/code/repository.h"

#include <git2.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/code/ignore_rules.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::code {
namespace {

// Larger files that git tracks count as binary in the differences.
constexpr int64_t kDiffedFileMax = 512 << 10;

absl::Status GitError(absl::string_view what) {
  const git_error* error = git_error_last();
  return absl::UnavailableError(absl::StrCat("libgit2 cannot ", what, error == nullptr ? "" : ": ",
                                             error == nullptr ? "" : error->message));
}

// Frees an object of libgit2 with its own function.
template <typename T, void (*Free)(T*)>
struct Freed {
  T* value = nullptr;
  Freed() = default;
  Freed(const Freed&) = delete;
  Freed& operator=(const Freed&) = delete;
  ~Freed() { Free(value); }
};
using Repo = Freed<git_repository, git_repository_free>;
using Index = Freed<git_index, git_index_free>;

absl::StatusOr<std::string> TemporaryFolder() {
  std::error_code failed;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(failed);
  if (failed) return absl::UnavailableError("there is no folder for temporary files");
  std::string path = (parent / "trainyard-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) return ErrnoStatus(errno, "cannot make a folder as", path);
  return path;
}

// Makes a bare repository whose working tree is `tree`.
absl::Status MakeRepository(const std::string& path, const std::string& tree, Repo& repo) {
  if (git_repository_init(&repo.value, path.c_str(), /*is_bare=*/1) != 0 ||
      git_repository_set_workdir(repo.value, tree.c_str(), /*update_gitlink=*/0) != 0) {
    return GitError("make a temporary repository");
  }
  return absl::OkStatus();
}

std::string TextOf(const char* text) {
  return text == nullptr ? "" : text;
}

}  // namespace

struct Repository::State {
  std::string folder;
  std::string temporary;
  bool is_real = false;
  std::string prefix;  // of the folder below the working tree: "sub/folder/", or empty
  Repo repo;
  Repo own;  // the patterns of .trainyardignore alone
  Index index;
  bool has_own_rules = false;

  State() {
    git_libgit2_init();
    // Nothing of the repository is executed, so it may belong to somebody else.
    git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 0);
  }
  ~State() {
    if (!temporary.empty()) (void)RemoveTree(temporary);
  }
  bool IsIgnoredBy(const Repo& by, const std::string& path) const {
    int ignored = 0;
    return git_ignore_path_is_ignored(&ignored, by.value, path.c_str()) == 0 && ignored != 0;
  }
  bool HasTracked(const std::string& folder_path) const {
    size_t position = 0;
    return index.value != nullptr &&
           git_index_find_prefix(&position, index.value, folder_path.c_str()) == 0;
  }
  absl::Status FindRepository();
  void TakeDifferences(git_tree* tree, bool& is_dirty, std::string& diff);
};

absl::Status Repository::State::FindRepository() {
  if (git_repository_open_ext(&repo.value, folder.c_str(), 0, nullptr) == 0) {
    const std::string tree = TextOf(git_repository_workdir(repo.value));
    const std::string below = absl::StrCat(folder, "/");
    if (!tree.empty() && absl::StartsWith(below, tree)) {
      prefix = below.substr(tree.size());
      is_real = git_repository_index(&index.value, repo.value) == 0 &&
                (prefix.empty() || HasTracked(prefix) || !IsIgnoredBy(repo, prefix));
    }
  }
  if (is_real) return absl::OkStatus();
  prefix.clear();
  git_index_free(std::exchange(index.value, nullptr));
  git_repository_free(std::exchange(repo.value, nullptr));
  return MakeRepository(JoinPath(temporary, "none.git"), folder, repo);
}

Repository::Repository(std::unique_ptr<State> state) : state_(std::move(state)) {}
Repository::~Repository() = default;

absl::StatusOr<std::unique_ptr<Repository>> Repository::Open(const std::string& folder) {
  auto state = std::make_unique<State>();
  state->folder = folder;
  TY_ASSIGN_OR_RETURN(state->temporary, TemporaryFolder());
  TY_RETURN_IF_ERROR(state->FindRepository());
  const std::string empty = JoinPath(state->temporary, "empty");
  TY_RETURN_IF_ERROR(MakeDirectories(empty, 0700));
  TY_RETURN_IF_ERROR(MakeRepository(JoinPath(state->temporary, "own.git"), empty, state->own));
  return std::unique_ptr<Repository>(new Repository(std::move(state)));
}

absl::Status Repository::AddRules(absl::string_view folder, absl::string_view rules) {
  const std::string own = RulesAtTop(folder, rules);
  const std::string whole =
      RulesAtTop(absl::StripSuffix(absl::StrCat(state_->prefix, folder), "/"), rules);
  if (git_ignore_add_rule(state_->own.value, own.c_str()) != 0 ||
      git_ignore_add_rule(state_->repo.value, whole.c_str()) != 0) {
    return GitError(absl::StrCat("read the patterns of ", kOwnIgnore));
  }
  state_->has_own_rules = true;
  return absl::OkStatus();
}

bool Repository::IsIgnored(const std::string& path, bool is_folder) {
  const std::string slash = is_folder ? "/" : "";
  if (state_->has_own_rules && state_->IsIgnoredBy(state_->own, path + slash)) return true;
  const std::string whole = absl::StrCat(state_->prefix, path, slash);
  if (is_folder ? state_->HasTracked(whole) : IsTracked(path)) return false;
  return state_->IsIgnoredBy(state_->repo, whole);
}

bool Repository::IsTracked(const std::string& path) const {
  if (state_->index.value == nullptr) return false;
  const std::string whole = absl::StrCat(state_->prefix, path);
  return git_index_get_bypath(state_->index.value, whole.c_str(), 0) != nullptr;
}

std::vector<std::string> Repository::RuleFiles() const {
  std::vector<std::string> files;
  if (!state_->is_real) return files;
  const std::string tree = TextOf(git_repository_workdir(state_->repo.value));
  files.push_back(TextOf(git_repository_commondir(state_->repo.value)) + "info/exclude");
  files.push_back(TextOf(git_index_path(state_->index.value)));
  // The folders between the top of the repository and the folder.
  for (size_t slash = state_->prefix.find('/'); slash != std::string::npos;
       slash = state_->prefix.find('/', slash + 1)) {
    const std::string above = state_->prefix.substr(0, state_->prefix.rfind('/', slash - 1) + 1);
    files.push_back(absl::StrCat(tree, above, kGitIgnore));
  }
  Freed<git_config, git_config_free> config;
  git_buf path = GIT_BUF_INIT;
  if (git_repository_config(&config.value, state_->repo.value) == 0 &&
      git_config_get_path(&path, config.value, "core.excludesfile") == 0) {
    files.push_back(TextOf(path.ptr));
  }
  git_buf_dispose(&path);
  return files;
}

void Repository::State::TakeDifferences(git_tree* tree, bool& is_dirty, std::string& diff) {
  git_diff_options options = GIT_DIFF_OPTIONS_INIT;
  options.flags = GIT_DIFF_DISABLE_PATHSPEC_MATCH | GIT_DIFF_IGNORE_SUBMODULES;
  options.max_size = kDiffedFileMax;
  std::string only(absl::StripSuffix(prefix, "/"));
  char* paths[] = {only.data()};
  if (!only.empty()) options.pathspec = {paths, 1};
  Freed<git_diff, git_diff_free> found;
  if (git_diff_tree_to_workdir_with_index(&found.value, repo.value, tree, &options) != 0) return;
  const size_t count = git_diff_num_deltas(found.value);
  for (size_t i = 0; i < count; ++i) {
    const git_diff_delta* delta = git_diff_get_delta(found.value, i);
    const std::string path = TextOf(delta->new_file.path).substr(prefix.size());
    // A file that must not travel does not travel as a difference either.
    if (has_own_rules && IsIgnoredBy(own, path)) continue;
    is_dirty = true;
    if (diff.size() >= kDiffBytesMax) return;
    Freed<git_patch, git_patch_free> patch;
    git_buf text = GIT_BUF_INIT;
    if (git_patch_from_diff(&patch.value, found.value, i) == 0 && patch.value != nullptr &&
        git_patch_to_buf(&text, patch.value) == 0) {
      diff.append(text.ptr, text.size);
    }
    git_buf_dispose(&text);
  }
  if (diff.size() > kDiffBytesMax) diff.resize(diff.rfind('\n', kDiffBytesMax - 1) + 1);
}

v1::CodeOrigin Repository::Origin(std::string& diff) {
  v1::CodeOrigin origin;
  Freed<git_reference, git_reference_free> head;
  if (!state_->is_real || git_repository_head(&head.value, state_->repo.value) != 0) return origin;
  const git_oid* commit_id = git_reference_target(head.value);
  Freed<git_commit, git_commit_free> commit;
  Freed<git_tree, git_tree_free> tree;
  if (commit_id == nullptr ||
      git_commit_lookup(&commit.value, state_->repo.value, commit_id) != 0 ||
      git_commit_tree(&tree.value, commit.value) != 0) {
    return origin;
  }
  char digits[GIT_OID_HEXSZ + 1];
  origin.set_commit(git_oid_tostr(digits, sizeof digits, commit_id));
  if (git_reference_is_branch(head.value) == 1) {
    origin.set_branch(TextOf(git_reference_shorthand(head.value)));
  }
  Freed<git_remote, git_remote_free> remote;
  if (git_remote_lookup(&remote.value, state_->repo.value, "origin") == 0) {
    origin.set_remote(WithoutPassword(TextOf(git_remote_url(remote.value))));
  }
  bool is_dirty = false;
  state_->TakeDifferences(tree.value, is_dirty, diff);
  origin.set_is_dirty(is_dirty);
  return origin;
}

std::string WithoutPassword(absl::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme == url.npos) return std::string(url);  // a path, or git@host:path
  const size_t begin = scheme + 3;
  const size_t end = std::min(url.find('/', begin), url.size());
  const size_t at = url.substr(0, end).rfind('@');
  if (at == url.npos || at < begin) return std::string(url);
  return absl::StrCat(url.substr(0, begin), url.substr(at + 1));
}

}  // namespace trainyard::code
