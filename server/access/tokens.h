// Knows the tokens by which users and joining workers prove who they are. Only a token's SHA-256 is
// kept: whoever reads the server's files can use none of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace trainyard::access {

enum class TokenKind { kUser, kJoin };
// A scope limits what a token may be used for, whatever its owner may do.
enum class TokenScope { kRead, kSubmit, kFull };

// Returns "user" and "join", and "read", "submit" and "full".
absl::string_view TokenKindText(TokenKind kind);
std::optional<TokenKind> ParseTokenKind(absl::string_view text);
absl::string_view TokenScopeText(TokenScope scope);
std::optional<TokenScope> ParseTokenScope(absl::string_view text);

// A token as it is stored. It does not change, except for its last use, its revocation, and what a
// worker leaves that joins with it.
struct TokenRecord {
  std::string id;    // names the token for people: the first 12 hexadecimal digits of its hash
  std::string hash;  // 32 bytes
  TokenKind kind = TokenKind::kUser;
  // The user for whom the token speaks; for kJoin, the user who has invited the worker.
  std::string user;
  TokenScope scope = TokenScope::kFull;  // of kUser
  // For kJoin, this is the only name that may join, or "" for any. Once the token was used, it is
  // the name of the worker that has joined.
  std::string worker;
  std::string note;
  absl::Time created;
  absl::Time expires;
  std::optional<absl::Time> last_used;
  // A join token that was used is revoked by that.
  std::optional<absl::Time> revoked;
  // The key (Certificate::key_fingerprint) with which a worker has used the token up. The answer
  // may have been lost, so that worker with that key may come again until the token expires. It is
  // empty if nobody may.
  std::string joined_key = {};

  friend bool operator==(const TokenRecord&, const TokenRecord&) = default;
};

inline constexpr absl::Duration kTokenLifetime = absl::Hours(24 * 90);
inline constexpr absl::Duration kTokenLifetimeMax = absl::Hours(24 * 366);
inline constexpr absl::Duration kJoinTokenLifetime = absl::Hours(1);
// Tokens that ended stay known for this long, so that their holders are told why they fail.
inline constexpr absl::Duration kEndedTokenKept = absl::Hours(24 * 30);
// The last use is noted in steps of this, so that not each call is written to the disk.
inline constexpr absl::Duration kLastUseStep = absl::Minutes(1);
// Tokens that are valid and belong to one user, and tokens altogether. They bound the memory.
inline constexpr size_t kTokensOfUserMax = 100;
inline constexpr size_t kTokensMax = 100'000;

// A token that was just made. `text` is shown once and kept nowhere.
struct NewToken {
  std::string text;
  TokenRecord record;
};

// Returns the id of the token with this hash.
std::string IdOfTokenHash(absl::string_view hash);

// Makes a token of `draft`, whose id, hash and created are filled in.
NewToken MakeToken(TokenRecord draft, absl::Time now);

// The tokens in memory. The class is thread-safe, and all of its calls are short.
class TokenTable {
 public:
  TokenTable() = default;

  // Loads what is stored.
  explicit TokenTable(const std::vector<TokenRecord>& stored);

  // Returns RESOURCE_EXHAUSTED if there may be no further token.
  absl::Status CheckRoom(absl::string_view user, absl::Time now) const;
  void Add(const TokenRecord& record);

  // Returns the record of a token that is valid, and notes that it was used. Returns
  // UNAUTHENTICATED: TOKEN_UNKNOWN for a text that is no token of ours, TOKEN_EXPIRED and
  // TOKEN_REVOKED for one that was.
  absl::StatusOr<TokenRecord> Use(absl::string_view text, TokenKind kind, absl::Time now);

  // Revokes a token, and returns what it is now. Nobody joins with it any more. NOT_FOUND if there
  // is none.
  absl::StatusOr<TokenRecord> Revoke(absl::string_view id, absl::Time now);
  // Returns the record of a join token that is valid, or that was used up by a worker which may
  // come again. The errors are those of Use.
  absl::StatusOr<TokenRecord> FindInvitation(absl::string_view text, absl::Time now);
  // Uses a join token up for a worker and its key. Of several that come with it at once, only the
  // first succeeds; the same worker with the same key succeeds again. The errors are those of Use.
  absl::StatusOr<TokenRecord> UseUp(absl::string_view text, const std::string& worker,
                                    const std::string& key, absl::Time now);

  // Uses the token of a pod up for a worker and its key, as if it were a join token that had been
  // made for `account`, and that ends at `expires`. Nobody has made a record of it before. Returns
  // RESOURCE_EXHAUSTED if there may be no further token; the other errors are those of Use.
  absl::StatusOr<TokenRecord> UseUpOfPod(absl::string_view text, const std::string& account,
                                         absl::Time expires, const std::string& worker,
                                         const std::string& key, absl::Time now);

  // Lets a worker not join again with invitations that it has used up, and returns their records,
  // for the store.
  std::vector<TokenRecord> EndJoins(absl::string_view worker);

  absl::StatusOr<TokenRecord> Find(absl::string_view id) const;
  // Returns the tokens of a user, or of all if `user` is empty, the newest first.
  std::vector<TokenRecord> List(absl::string_view user) const;

  // Returns the records whose last use has changed since the last call, for the store.
  std::vector<TokenRecord> TakeUsed();
  // Returns the tokens that have expired after `from` and not after `to`.
  std::vector<TokenRecord> Expired(absl::Time from, absl::Time to) const;
  // Forgets tokens that ended long ago, and returns their ids, for the store.
  std::vector<std::string> Forget(absl::Time now);

 private:
  struct Entry {
    TokenRecord record;
    bool is_unsaved = false;
  };

  // Returns the entry of a valid token, or the error.
  absl::StatusOr<Entry*> Check(absl::string_view text, TokenKind kind, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Uses up the token of a record that is known.
  static absl::StatusOr<TokenRecord> UseUpRecord(TokenRecord& record, const std::string& worker,
                                                 const std::string& key, absl::Time now);
  // Returns what was ever known under the text, or TOKEN_UNKNOWN.
  absl::StatusOr<Entry*> Known(absl::string_view text, TokenKind kind)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  // By hash. Whoever knows no token learns nothing from the time that a look-up takes, since the
  // hash of a guess cannot be steered.
  absl::flat_hash_map<std::string, Entry> tokens_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::string> hash_by_id_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::access
