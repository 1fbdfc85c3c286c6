//! What the tests share: a sealed environment, repositories, a running `worktree dev`, SDK clients.
