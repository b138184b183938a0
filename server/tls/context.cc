// Sets OpenSSL up. Nothing that has state between connections is turned on: no tickets, no sessions
// and no early data, so every connection proves anew who it is.
#include "server/tls/context.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/tls/openssl.h"
#include "common/tls/read.h"

namespace trainyard::tls {
namespace {

// A chain of clients has the certificate of a worker and at most two authorities.
constexpr int kClientChainMax = 3;

// Chooses a protocol from what a client offers, or refuses the connection. Browsers and curl offer
// both, and there is only gRPC behind HTTP/2, whose clients offer nothing else.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size,
                   const unsigned char* offered, unsigned int size, void*) {
  for (const absl::string_view wanted : {kHttp1, kHttp2}) {
    for (unsigned int at = 0; at < size; at += offered[at] + 1U) {
      const absl::string_view name(reinterpret_cast<const char*>(offered + at + 1), offered[at]);
      if (name != wanted) continue;
      *chosen = offered + at + 1;
      *chosen_size = offered[at];
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

absl::Status UseChain(SSL_CTX& context, const std::string& chain) {
  TY_ASSIGN_OR_RETURN(const auto certificates, ReadCertificates(chain));
  for (size_t i = 0; i < certificates.size(); ++i) {
    TY_ASSIGN_OR_RETURN(X509Ptr certificate, ReadFirstCertificate(certificates[i].pem));
    const bool is_used = i == 0 ? SSL_CTX_use_certificate(&context, certificate.get()) == 1
                                : SSL_CTX_add0_chain_cert(&context, certificate.get()) == 1;
    if (!is_used) return OpenSslError("the certificate cannot be used");
    if (i > 0) (void)certificate.release();  // the context owns it now
  }
  return absl::OkStatus();
}

absl::Status UseKey(SSL_CTX& context, const std::string& pem) {
  TY_ASSIGN_OR_RETURN(const KeyPtr key, ReadKey(pem));
  if (SSL_CTX_use_PrivateKey(&context, key.get()) != 1 ||
      SSL_CTX_check_private_key(&context) != 1) {
    return OpenSslError("the key does not belong to the certificate");
  }
  return absl::OkStatus();
}

absl::Status TrustAuthorities(SSL_CTX& context, const std::string& authorities) {
  TY_ASSIGN_OR_RETURN(const auto certificates, ReadCertificates(authorities));
  X509_STORE* store = SSL_CTX_get_cert_store(&context);
  for (const Certificate& authority : certificates) {
    TY_ASSIGN_OR_RETURN(const X509Ptr certificate, ReadFirstCertificate(authority.pem));
    if (X509_STORE_add_cert(store, certificate.get()) != 1 ||
        SSL_CTX_add_client_CA(&context, certificate.get()) != 1) {
      return OpenSslError("the authority of clients cannot be used");
    }
  }
  // A client without a certificate is let in, and needs a token then.
  SSL_CTX_set_verify(&context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_verify_depth(&context, kClientChainMax);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SharedContext> MakeServerContext(const ServerMaterial& material) {
  SharedContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  TY_CHECK(context != nullptr);
  TY_CHECK(SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) == 1);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
                                         SSL_OP_IGNORE_UNEXPECTED_EOF |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context.get(), ChooseProtocol, nullptr);
  TY_RETURN_IF_ERROR(Annotate(UseChain(*context, material.chain), "the server's certificate"));
  TY_RETURN_IF_ERROR(Annotate(UseKey(*context, material.key), "the server's key"));
  TY_RETURN_IF_ERROR(Annotate(TrustAuthorities(*context, material.client_authorities),
                              "the authorities of clients"));
  ERR_clear_error();
  return context;
}

}  // namespace trainyard::tls
