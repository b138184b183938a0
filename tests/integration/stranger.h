// Comes to a server without a client of ours: opens connections by the hundred, speaks HTTP/2 frame
// by frame, and breaks its rules.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/files.h"
#include "grpcpp/grpcpp.h"
#include "tests/unit/server/tls/tls_client.h"

namespace trainyard::testing {

// Connects to a port of 127.0.0.1 from this address of the loopback network, which the server takes
// for that of a host. Reads and writes of the socket give up after a while. Returns an invalid
// descriptor if nobody accepts the connection.
UniqueFd ConnectFrom(const std::string& source, uint16_t port);

// Opens a connection of TLS that has made its handshake, or returns null.
std::unique_ptr<tls::TlsClient> OpenTls(const std::string& source, uint16_t port,
                                        const tls::TlsClient::Options& options = {});

// Returns true if the server answers a connection with these options as it does every client of
// HTTP/2, which is told the server's settings.
bool IsServed(uint16_t port, const tls::TlsClient::Options& options);

// The frames of HTTP/2 (RFC 9113).
enum FrameType : uint8_t {
  kDataFrame = 0,
  kHeadersFrame = 1,
  kResetStreamFrame = 3,
  kSettingsFrame = 4,
  kContinuationFrame = 9
};
inline constexpr uint8_t kEndStream = 1;
inline constexpr uint8_t kEndHeaders = 4;
inline constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(FrameType type, uint8_t flags, uint32_t stream, absl::string_view payload);
// Returns a header as HPACK writes it without tables, or as one that the server is to remember.
// Name and value have at most 126 bytes.
std::string Header(absl::string_view name, absl::string_view value, bool is_remembered = false);
// Returns the headers with which gRPC calls a method, "/trainyard.v1.JobService/ListJobs".
std::string CallHeaders(const std::string& method, bool is_remembered = false);
// These bytes repeat the headers of the first request, if those were to be remembered.
inline constexpr absl::string_view kSameHeaders = "\xc3\xc2\xc1\xc0\xbf\xbe";

// Returns all methods of the API, as "/trainyard.v1.JobService/ListJobs".
std::vector<std::string> AllMethods();

// Returns the memory that a process has, in bytes.
int64_t ResidentBytes(pid_t process);

}  // namespace trainyard::testing
