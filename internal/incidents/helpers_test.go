package incidents

import bolt "go.etcd.io/bbolt"

func setVersion(db *bolt.DB, v string) error {
	return db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyVersion), []byte(v))
	})
}
