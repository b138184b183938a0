// Returns early if an absl::Status or absl::StatusOr has failed.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TY_RETURN_IF_ERROR(expression)                            \
  do {                                                            \
    if (absl::Status ty_status = (expression); !ty_status.ok()) { \
      return ty_status;                                           \
    }                                                             \
  } while (false)

#define TY_MACRO_CONCAT_INNER(a, b) a##b
#define TY_MACRO_CONCAT(a, b) TY_MACRO_CONCAT_INNER(a, b)

// An example: TY_ASSIGN_OR_RETURN(auto value, Function());
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration cannot stand in parentheses.
#define TY_ASSIGN_OR_RETURN(declaration, expression) \
  TY_ASSIGN_OR_RETURN_IMPL(TY_MACRO_CONCAT(ty_statusor_, __LINE__), declaration, expression)

#define TY_ASSIGN_OR_RETURN_IMPL(statusor, declaration, expression) \
  auto statusor = (expression);                                     \
  if (!statusor.ok()) {                                             \
    return std::move(statusor).status();                            \
  }                                                                 \
  declaration = *std::move(statusor)
// NOLINTEND(bugprone-macro-parentheses)
