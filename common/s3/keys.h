// Holds the keys with which requests are signed.
#pragma once

#include <string>

namespace trainyard::s3 {

struct Credentials {
  std::string access_key_id;
  std::string secret_access_key;
  std::string session_token;  // empty for keys that do not expire
};

}  // namespace trainyard::s3
