// How failures of libgoccl become exceptions.
//
// Failures of communication are c10::DistBackendError (torch.distributed.DistBackendError, a RuntimeError), arguments that
// cannot be right c10::Error (RuntimeError), and what is right but not supported c10::NotImplementedError
// (NotImplementedError, a RuntimeError).
#pragma once

#include <exception>
#include <string>

#include <c10/util/Exception.h>

#include "goccl.h"

namespace goccl {

// A goccl_error without the cost of clearing its two kilobytes.
struct Failure : goccl_error {
  Failure() {
    code = GOCCL_OK;
    peer = -1;
    text[0] = '\0';
  }
};

std::exception_ptr as_exception(int code, const std::string& text);
std::exception_ptr as_exception(int code, const goccl_error& error, const char* what);

[[noreturn]] void throw_failure(int code, const char* what, const std::string& text);
[[noreturn]] void throw_failure(int code, const goccl_error& error, const char* what);

} // namespace goccl
