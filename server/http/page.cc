// Names of files in /assets/ have a hash of what is in them, so a browser may keep them for ever.
#include "server/http/page.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "server/http/page_files.h"

namespace trainyard::http {
namespace {

constexpr char kFirstPage[] = "/index.html";
// The page has one script and one style sheet of this server. Nothing else may run in it or be
// sent from it, whatever a job is named and whatever it prints.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

Response ResponseOf(const PageFile& file, const Request& request) {
  Response response;
  response.content_type = std::string(file.content_type);
  const bool is_compressed = absl::StrContains(request.Header("accept-encoding"), "gzip");
  response.body = std::string(is_compressed ? file.compressed : file.bytes);
  if (is_compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  response.headers.emplace_back("Vary", "Accept-Encoding");
  const bool is_hashed = absl::StartsWith(file.path, "/assets/");
  response.headers.emplace_back("Cache-Control",
                                is_hashed ? "public, max-age=31536000, immutable" : "no-cache");
  response.headers.emplace_back("Content-Security-Policy", kPolicy);
  response.headers.emplace_back("Referrer-Policy", "no-referrer");
  response.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  return response;
}

}  // namespace

const std::vector<PageFile>& PageFiles() {
  static const auto* files = new std::vector<PageFile>(ListEmbeddedFiles());
  return *files;
}

void AddPage(Routes& routes) {
  for (const PageFile& file : PageFiles()) {
    const Handler serve = [&file](const ExchangePtr& exchange) {
      exchange->Answer(ResponseOf(file, exchange->request()));
    };
    if (file.path == kFirstPage) routes.SetPages(serve);
    routes.Add(std::string(file.path), {"GET"}, serve);
  }
}

}  // namespace trainyard::http
