// Makes files of tokens for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::data {

// Returns tokens as nanoGPT writes them.
inline std::string RawTokens(const std::vector<uint16_t>& tokens) {
  std::string bytes;
  for (const uint16_t token : tokens) {
    bytes += static_cast<char>(token & 0xff);
    bytes += static_cast<char>(token >> 8);
  }
  return bytes;
}

// Returns tokens as llm.c writes them.
inline std::string HeadedTokens(const std::vector<uint16_t>& tokens, uint32_t magic = 20240520,
                                uint32_t version = 1) {
  std::string header;
  for (const uint32_t number : {magic, version, static_cast<uint32_t>(tokens.size())}) {
    for (const int shift : {0, 8, 16, 24}) header += static_cast<char>(number >> shift & 0xff);
  }
  header.resize(1024, '\0');
  return header + RawTokens(tokens);
}

// Makes a text with structure: most of the time, each of `count` tokens below `vocabulary` follows
// from the one before.
inline std::vector<uint16_t> LearnableTokens(size_t count, uint32_t vocabulary) {
  std::vector<uint16_t> tokens;
  uint64_t state = 1;
  uint32_t token = 0;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    token = (state >> 40) % 5 == 0 ? static_cast<uint32_t>(state >> 33) % vocabulary
                                   : (3 * token + 1) % vocabulary;
    tokens.push_back(static_cast<uint16_t>(token));
  }
  return tokens;
}

}  // namespace trainyard::data
