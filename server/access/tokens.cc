// Keeps tokens in two maps, by hash for the calls and by id for people.
#include "server/access/tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/sign_in_errors.h"
#include "common/base/status_macros.h"
#include "common/base/token_form.h"
#include "common/tls/digest.h"

namespace trainyard::access {
namespace {

constexpr size_t kIdBytes = 6;

absl::string_view PrefixOf(TokenKind kind) {
  return kind == TokenKind::kUser ? kUserTokenPrefix : kJoinTokenPrefix;
}

absl::Status TooManyTokens(size_t count) {
  return absl::ResourceExhaustedError(
      absl::StrCat("there are ", count, " tokens; ended ones are forgotten after ",
                   absl::ToInt64Hours(kEndedTokenKept) / 24, " days"));
}

// Returns the time at which a token ceases to be valid.
absl::Time EndOf(const TokenRecord& record) {
  return std::min(record.expires, record.revoked.value_or(absl::InfiniteFuture()));
}

}  // namespace

absl::string_view TokenKindText(TokenKind kind) {
  return kind == TokenKind::kUser ? "user" : "join";
}

std::optional<TokenKind> ParseTokenKind(absl::string_view text) {
  for (const TokenKind kind : {TokenKind::kUser, TokenKind::kJoin}) {
    if (TokenKindText(kind) == text) return kind;
  }
  return std::nullopt;
}

absl::string_view TokenScopeText(TokenScope scope) {
  switch (scope) {
    case TokenScope::kRead:
      return "read";
    case TokenScope::kSubmit:
      return "submit";
    case TokenScope::kFull:
      return "full";
  }
  return "read";
}

std::optional<TokenScope> ParseTokenScope(absl::string_view text) {
  for (const TokenScope scope : {TokenScope::kRead, TokenScope::kSubmit, TokenScope::kFull}) {
    if (TokenScopeText(scope) == text) return scope;
  }
  return std::nullopt;
}

std::string IdOfTokenHash(absl::string_view hash) {
  return absl::BytesToHexString(hash.substr(0, kIdBytes));
}

NewToken MakeToken(TokenRecord draft, absl::Time now) {
  NewToken made;
  made.text = TokenText(PrefixOf(draft.kind), tls::SecretBytes(kTokenSecretBytes));
  made.record = std::move(draft);
  made.record.hash = tls::Sha256(made.text);
  made.record.id = IdOfTokenHash(made.record.hash);
  made.record.created = now;
  return made;
}

TokenTable::TokenTable(const std::vector<TokenRecord>& stored) {
  for (const TokenRecord& record : stored) Add(record);
}

absl::Status TokenTable::CheckRoom(absl::string_view user, absl::Time now) const {
  const MutexLock lock(&mutex_);
  if (tokens_.size() >= kTokensMax) {
    return TooManyTokens(tokens_.size());
  }
  const auto of_user = std::count_if(tokens_.begin(), tokens_.end(), [&](const auto& token) {
    return token.second.record.user == user && now < EndOf(token.second.record);
  });
  if (static_cast<size_t>(of_user) < kTokensOfUserMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "user '", user, "' has ", of_user, " tokens; revoke one that is not used any more"));
}

void TokenTable::Add(const TokenRecord& record) {
  const MutexLock lock(&mutex_);
  hash_by_id_[record.id] = record.hash;
  tokens_[record.hash] = Entry{record};
}

absl::StatusOr<TokenTable::Entry*> TokenTable::Known(absl::string_view text, TokenKind kind) {
  // A stranger is told the same about a token that never was, whatever is wrong with it.
  const auto found =
      CheckTokenForm(text, PrefixOf(kind)).ok() ? tokens_.find(tls::Sha256(text)) : tokens_.end();
  if (found == tokens_.end()) return error::TokenUnknown();
  return &found->second;
}

absl::StatusOr<TokenTable::Entry*> TokenTable::Check(absl::string_view text, TokenKind kind,
                                                     absl::Time now) {
  TY_ASSIGN_OR_RETURN(Entry* const known, Known(text, kind));
  const TokenRecord& record = known->record;
  if (record.revoked.has_value()) return error::TokenRevoked(record.id, *record.revoked);
  if (now >= record.expires) return error::TokenExpired(record.id, record.expires);
  return known;
}

absl::StatusOr<TokenRecord> TokenTable::Use(absl::string_view text, TokenKind kind,
                                            absl::Time now) {
  const MutexLock lock(&mutex_);
  TY_ASSIGN_OR_RETURN(Entry* const entry, Check(text, kind, now));
  TokenRecord& record = entry->record;
  if (!record.last_used.has_value() || now - *record.last_used >= kLastUseStep) {
    record.last_used = now;
    entry->is_unsaved = true;
  }
  return record;
}

absl::StatusOr<TokenRecord> TokenTable::FindInvitation(absl::string_view text, absl::Time now) {
  const MutexLock lock(&mutex_);
  TY_ASSIGN_OR_RETURN(const Entry* const known, Known(text, TokenKind::kJoin));
  const TokenRecord& record = known->record;
  if (record.revoked.has_value() && record.joined_key.empty()) {
    return error::TokenRevoked(record.id, *record.revoked);
  }
  if (now >= record.expires) return error::TokenExpired(record.id, record.expires);
  return record;
}

absl::StatusOr<TokenRecord> TokenTable::UseUp(absl::string_view text, const std::string& worker,
                                              const std::string& key, absl::Time now) {
  const MutexLock lock(&mutex_);
  TY_ASSIGN_OR_RETURN(Entry* const known, Known(text, TokenKind::kJoin));
  return UseUpRecord(known->record, worker, key, now);
}

absl::StatusOr<TokenRecord> TokenTable::UseUpOfPod(absl::string_view text,
                                                   const std::string& account, absl::Time expires,
                                                   const std::string& worker,
                                                   const std::string& key, absl::Time now) {
  TokenRecord draft;
  draft.hash = tls::Sha256(text);
  draft.id = IdOfTokenHash(draft.hash);
  draft.kind = TokenKind::kJoin;
  draft.user = account;
  draft.created = now;
  draft.expires = expires;
  const MutexLock lock(&mutex_);
  auto found = tokens_.find(draft.hash);
  if (found == tokens_.end()) {
    if (tokens_.size() >= kTokensMax) return TooManyTokens(tokens_.size());
    hash_by_id_[draft.id] = draft.hash;
    found = tokens_.emplace(draft.hash, Entry{draft}).first;
  }
  return UseUpRecord(found->second.record, worker, key, now);
}

absl::StatusOr<TokenRecord> TokenTable::UseUpRecord(TokenRecord& record, const std::string& worker,
                                                    const std::string& key, absl::Time now) {
  if (now >= record.expires) return error::TokenExpired(record.id, record.expires);
  if (record.revoked.has_value()) {
    const bool comes_again =
        !record.joined_key.empty() && record.worker == worker && record.joined_key == key;
    if (!comes_again) return error::TokenRevoked(record.id, *record.revoked);
  } else {
    record.revoked = now;
    record.worker = worker;
    record.joined_key = key;
  }
  record.last_used = now;
  return record;
}

absl::StatusOr<TokenRecord> TokenTable::Revoke(absl::string_view id, absl::Time now) {
  const MutexLock lock(&mutex_);
  const auto hash = hash_by_id_.find(id);
  if (hash == hash_by_id_.end()) return error::TokenNotFound(id);
  TokenRecord& record = tokens_.at(hash->second).record;
  if (!record.revoked.has_value()) record.revoked = now;
  record.joined_key.clear();
  return record;
}

std::vector<TokenRecord> TokenTable::EndJoins(absl::string_view worker) {
  std::vector<TokenRecord> ended;
  const MutexLock lock(&mutex_);
  for (auto& [hash, entry] : tokens_) {
    if (entry.record.worker != worker || entry.record.joined_key.empty()) continue;
    entry.record.joined_key.clear();
    ended.push_back(entry.record);
  }
  return ended;
}

absl::StatusOr<TokenRecord> TokenTable::Find(absl::string_view id) const {
  const MutexLock lock(&mutex_);
  const auto hash = hash_by_id_.find(id);
  if (hash == hash_by_id_.end()) return error::TokenNotFound(id);
  return tokens_.at(hash->second).record;
}

std::vector<TokenRecord> TokenTable::List(absl::string_view user) const {
  std::vector<TokenRecord> records;
  {
    const MutexLock lock(&mutex_);
    for (const auto& [hash, entry] : tokens_) {
      if (user.empty() || entry.record.user == user) records.push_back(entry.record);
    }
  }
  std::sort(records.begin(), records.end(), [](const TokenRecord& a, const TokenRecord& b) {
    return a.created != b.created ? a.created > b.created : a.id < b.id;
  });
  return records;
}

std::vector<TokenRecord> TokenTable::TakeUsed() {
  std::vector<TokenRecord> used;
  const MutexLock lock(&mutex_);
  for (auto& [hash, entry] : tokens_) {
    if (!std::exchange(entry.is_unsaved, false)) continue;
    used.push_back(entry.record);
  }
  return used;
}

std::vector<TokenRecord> TokenTable::Expired(absl::Time from, absl::Time to) const {
  std::vector<TokenRecord> expired;
  const MutexLock lock(&mutex_);
  for (const auto& [hash, entry] : tokens_) {
    const TokenRecord& record = entry.record;
    if (record.expires > from && record.expires <= to) expired.push_back(record);
  }
  return expired;
}

std::vector<std::string> TokenTable::Forget(absl::Time now) {
  std::vector<std::string> forgotten;
  const MutexLock lock(&mutex_);
  absl::erase_if(tokens_, [&](const auto& token) {
    if (now < EndOf(token.second.record) + kEndedTokenKept) return false;
    forgotten.push_back(token.second.record.id);
    return true;
  });
  for (const std::string& id : forgotten) hash_by_id_.erase(id);
  return forgotten;
}

}  // namespace trainyard::access
