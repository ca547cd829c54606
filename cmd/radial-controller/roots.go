package main

// An image FROM scratch has no authorities of its own. Those of the system win
// where there are any (SSL_CERT_FILE, SSL_CERT_DIR).
import _ "golang.org/x/crypto/x509roots/fallback"
