//! Every command of an operator on a pseudo-terminal: what a person sees, is asked, and gets for Ctrl-C.

mod asking;
mod changing;
mod landing;
mod looking;
mod pty;

use self::pty::Terminal;
