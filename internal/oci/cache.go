package oci

import "sync"

// cache keeps templates by digest up to a number of bytes; the one that was
// used longest ago goes first.
type cache struct {
	mu    sync.Mutex
	limit int
	size  int
	// order has the newest at its end. There are few entries, so that a slice
	// does.
	order []Content
}

func (c *cache) get(digest string) (Content, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range c.order {
		if e.Digest == digest {
			c.order = append(append(c.order[:i:i], c.order[i+1:]...), e)
			return e, true
		}
	}
	return Content{}, false
}

func (c *cache) put(e Content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, old := range c.order {
		if old.Digest == e.Digest {
			return
		}
	}
	c.order = append(c.order, e)
	c.size += len(e.Data)
	for c.size > c.limit && len(c.order) > 0 {
		c.size -= len(c.order[0].Data)
		c.order = c.order[1:]
	}
}
